"""What makes notebooks run, play and check. A reader of the lessons never needs to open it.

In notebooks   lesson: %%gpu cells; exercise, capture_exercises, repaired: checks; progress: what is
               solved; player: a lesson run as a reader without a GPU runs it, with its outputs
               exhibits: the gallery's failures; broken_scripts: scripts to repair; node_chart:
               graphs drawn; beside: the recordings of all GPUs
               memory: given back; perfetto: traces; distributed: several ranks; listing: a part
               of a file; touch: pictures that one can touch
Rooms          recordings: what ran, and whether it is still true; answers: what is wrong with one
               scenarios: how an answer is used, a file per lesson; commands: what the Makefile
               calls
The start      set_up: the packages; obstacles: what keeps JupyterLab from starting; ready: its last
               word
For all        paths: where files are; lessons: their numbers; files: whole or not at all; machine:
               what it has
"""

import atexit
import gc

# torch's 200,000 objects are not looked through for garbage as the process ends: a kernel stops
# 0.3 s sooner
atexit.register(gc.freeze)
