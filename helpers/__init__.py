"""What lessons teach with; each module is shown in a lesson before it is used.

The subject   model, capture: what is trained, and the recipe that captures it
Measuring     timing (and spread), profiling, charts; trace, which trace_report reads
Several GPUs  ranks: the traces of all ranks side by side, and a wait with a limit
"""
