"""A report on profiler traces, in one line:

python -m trace_report eager.json graph.json --chart report.png --html report.html

A trace's way through these files: names says which to read; trace_file reads the format into
tables; faults says why they may mean nothing, intervals when something runs, trace sums up the
steps, verdict judges them; table writes the numbers in the units of units; step_view chooses a
step, lanes draws it; chart is the picture; page the HTML, with a timeline in the frame of touch.
setup builds the package.
"""
