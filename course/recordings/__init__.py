"""What ran, kept, and whether it is still true.

cells: a lesson's code cells and their kinds; values: what cells hand on, as JSON
recording: reading a recording, and whether it is stale; fingerprints: what cells reach, hashed
kernel_history: what ran in this kernel, compared with a recording; player: its cells run without a
    kernel
sanitise: no paths go in, no scripts come out
"""
