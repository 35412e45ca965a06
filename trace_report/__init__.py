"""A report on profiler traces, in one line:

python -m trace_report eager.json graph.json --chart report.png --html report.html

trace_file reads the format into tables, trace sums them up and judges. compare: several traces by
their names, and a step of each; lanes: a step on paper; chart: the picture; page: the HTML, with a
timeline in the frame of touch. setup builds the package.
"""
