"""A report on profiler traces, in one line:

python -m trace_report eager.json graph.json --chart report.png --html report.html

compare: reads the traces, and chooses a step of each; chart: the picture; page: the HTML, with a
timeline in the frame of touch. The numbers and the verdict are those of helpers.trace.
"""
