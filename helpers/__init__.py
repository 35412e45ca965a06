"""What lessons teach with, each module shown in a lesson before it is used.

The subject  model, capture: what is trained, and the recipe that captures it
Measuring    timing, profiling, kineto, json_events, trace, charts: host and step time, traces, pictures
Several GPUs ranks: the traces of all ranks side by side, and a wait with a limit
"""
