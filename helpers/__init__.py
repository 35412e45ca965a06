"""What lessons teach with, each module shown in a lesson before it is used.

The subject  model, capture, ladder: what is trained, the recipe that captures it, the ladder of variants
Measuring    timing, profiling, kineto, json_events, trace, charts: host and step time, traces, pictures
"""
