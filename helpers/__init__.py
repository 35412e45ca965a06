"""The course's helpers.

The subject    model, capture, rungs: what is trained, the recipe that captures it, the ladder of variants
Measuring      timing, profiling, kineto, trace, charts, memory: host and step time, traces, pictures
Finding faults preflight, gallery, explain, buckets: before a capture, after a failure, for many shapes
Lessons        recording, check, perfetto: what notebooks call to play recordings, check answers, show traces
Their files    lessons, values, paths, files: notebooks and recordings on disk, and what rides in them
Commands       doctor, lab, progress, record, works_on, trace, explain: python -m helpers.<name>
"""
