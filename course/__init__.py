"""What makes notebooks run, play and check. A reader of the lessons never needs to open it.

In notebooks   lesson: %%gpu cells; exercise, comparison, solutions: checks and guesses;
               capture_exercises, symptoms, scenarios: checks of captures;
               repaired, scripts, script_inputs, script_symptoms: checks of the ten broken scripts;
               exhibits: the gallery's failures; node_chart: graphs drawn; memory: giving GPU memory back;
               touch: pictures that one can touch; perfetto: traces in Perfetto;
               looks: how values are shown; progress: what is solved; torchrun: tasks on several GPUs
Recordings     record, execute: making them; recording: reading them, and whether they are still true;
               beside: those of all GPUs; history: what ran here; definitions: what a cell reaches;
               notebooks: the lessons as files;
               values: what rides in them; portable: no paths of the recording machine; files: whole or not at all
Commands       set_up, lab, progress, record, works_on, doctor: the Makefile calls them
"""

import atexit
import gc

# torch's 200,000 objects are not looked through for garbage as the process ends: a kernel stops 0.3 s sooner
atexit.register(gc.freeze)
