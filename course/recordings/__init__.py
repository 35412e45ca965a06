"""What ran, kept, and whether it is still true.

cells: a lesson's code cells and their kinds; values: what cells hand on, as JSON
statements: on which statements a %%gpu cell depends, hashed; free_names: which names they read
counts: what of the project counts; reached_code: what they reach of it, hashed
recording: reading and writing a recording, and whether it is stale
kernel_history: what ran in this kernel, compared with a recording
"""
