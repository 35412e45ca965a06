"""What records, plays and starts notebooks. A reader of the lessons never needs to open it.

In notebooks   lesson: %%gpu cells; progress: what is solved; player: a lesson run as a reader
               without a GPU runs it, with its outputs; display: numbers, charts and errors
               exhibits: the gallery's failures; node_chart: graphs drawn; recorded_gpus: the
               recordings of all GPUs
               memory: given back; perfetto: traces; show_source: a part of a file; touch:
               pictures that one can touch
Rooms          recordings: what ran, and whether it is still true; commands: what the Makefile calls
The start      set_up: the packages; lab_address: the last line of JupyterLab's start
For all        ranks: processes that end with their cell; paths: where files are; lessons: their
               numbers; files: whole or not at all; machine: what it has; at_exit: how a process
               ends
"""

import atexit
import gc

from course import at_exit as at_exit

# torch's 200,000 objects are not looked through for garbage as the process ends: a kernel stops
# 0.3 s sooner
atexit.register(gc.freeze)
