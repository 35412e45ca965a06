"""What the Makefile runs.

lab: the learner's copy, in JupyterLab; doctor: what this machine can do
record: recordings, made; due: which lessons to record; carry_over: recordings that fit on
works_on: every lesson, live
rename: names of lessons, with their numbers, and of functions; links to lessons
new_lesson: the two notebooks and the scenario that a lesson begins with
"""
