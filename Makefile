# make lab      set up once, then open your copy of the lessons    (make lab ARGS="--no-browser --port 9999")
# make progress say which exercises you have solved
# make test     set up once, then run the tests; live on a GPU     (make test ARGS="-k profile")
# make quick    the tests of what has changed since the last commit, in seconds
# make notebooks  run every notebook as a test, with nbmake       (make notebooks ARGS="-k start_here")
# make lint     linters and the type checker, on everything
# make hooks    the same before each commit, and diffs of notebooks cell by cell
# make record   record the lessons on this machine's GPU           (make record ARGS="start_here")
# make site     build the lessons as web pages                  (docs/_build/html)
# make fix      write what follows from your changes: links, tables, pages of lessons
# make read     write the lessons with what their cells show     (read/; make read ARGS="start_here")
# make readme   write the README's picture and tables again
# make new-lesson ARGS="verb_object 29"   begin a lesson: its two notebooks and its scenario
# make links    write today's numbers of the lessons into every link
# make rename ARGS="old_name new_name"  of a lesson (a number may come with it), a function or class
# make works-on run every lesson live, and keep what it took   (traces/works_on.json)
# make pins     resolve the tested versions anew                  (constraints.txt)
# make doctor   say what this machine can do
# make clean    remove the set-up                                 (uv keeps its downloads in ~/.cache/uv)
#
# CPU=1         torch's build for the CPU, even where there is an NVIDIA driver
# TORCH=2.11.0  another torch, in an environment of its own: .venv-2.11.0

PYTHON ?= python3
VENV := .venv$(TORCH:%=-%)
RUN := $(VENV)/bin/python -m
# a crashed worker or a test that never returns ends the run, and the run names it: a signal ends what
# listens to signals, faulthandler the process of what does not
TESTS := $(RUN) pytest --numprocesses=auto --dist=worksteal --max-worker-restart=0 -m "not weekly" \
    --timeout=600 --override-ini=faulthandler_timeout=900 --override-ini=faulthandler_exit_on_timeout=true
# compiled modules are kept: a hundred processes of the tests import torch
unexport PYTHONDONTWRITEBYTECODE
STAMPS := $(addprefix $(VENV)/,ready test works-on)

# a set-up of another place, or one whose Python is gone, is no set-up
ifneq ($(shell $(VENV)/bin/python -c pass 2>/dev/null && cat $(VENV)/ready 2>/dev/null),$(CURDIR))
.PHONY: $(STAMPS)
endif

.PHONY: lab progress test quick notebooks lint hooks record site read readme new-lesson links rename fix works-on pins doctor clean

lab: $(VENV)/ready
	@$(RUN) course.commands.lab $(ARGS)

progress: $(VENV)/ready
	@$(RUN) course.progress

test: $(VENV)/test
	$(TESTS) $(ARGS)

quick: $(VENV)/test
	@$(RUN) tests.quick $(ARGS)

notebooks: $(VENV)/test
	@$(RUN) course.machine
	$(RUN) pytest --nbmake --nbmake-timeout=600 notebooks $(ARGS)

lint: $(VENV)/test
	$(RUN) pre_commit run --all-files --show-diff-on-failure $(ARGS)

hooks: $(VENV)/test
	$(RUN) pre_commit install
	git config diff.jupyternotebook.command ".venv/bin/git-nbdiffdriver diff"
	git config merge.jupyternotebook.driver ".venv/bin/git-nbmergedriver merge %O %A %B %L %P"

record: $(VENV)/ready
	$(RUN) course.commands.record $(ARGS)

site: $(VENV)/test
	$(RUN) docs.pages
	$(RUN) sphinx --quiet --fail-on-warning --keep-going -c docs docs/_build/source docs/_build/html
	@echo "The site is in docs/_build/html."

read: $(VENV)/test
	$(RUN) docs.read $(ARGS)

fix: $(VENV)/test
	@$(RUN) docs.fix

readme: $(VENV)/test
	$(RUN) docs.readme

new-lesson: $(VENV)/ready
	@$(RUN) course.commands.new_lesson $(ARGS)

links: $(VENV)/ready
	@$(RUN) course.commands.rename

rename: $(VENV)/test
	@$(RUN) course.commands.rename $(ARGS)
	@$(RUN) docs.fix

works-on: $(VENV)/works-on
	$(RUN) course.commands.works_on $(ARGS)

pins: $(VENV)/test
	$(RUN) uv pip compile pyproject.toml --extra test --extra core --upgrade --quiet \
	    --python-version 3.11 --python-platform linux --output-file constraints.txt

doctor: $(VENV)/ready
	@$(RUN) course.commands.doctor

# what learners need (ready), and what tests and the site, and live runs of all lessons add
$(STAMPS): $(VENV)/%: pyproject.toml constraints.txt
	@command -v $(PYTHON) > /dev/null || (echo "There is no $(PYTHON): install Python 3.11" \
	    "or newer, or name it: make PYTHON=..." && false)
	@$(PYTHON) -m course.set_up $(filter-out ready,$*) $(if $(filter 1,$(CPU)),--cpu) \
	    $(TORCH:%=--torch=%)

clean:
	rm -rf .venv .venv-* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf *.egg-info docs/_build
