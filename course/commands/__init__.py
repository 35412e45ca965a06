"""What the Makefile runs.

renumber: the numbers of lessons, in file names and in links
new_lesson: the two notebooks and the scenario that a lesson begins with
"""
