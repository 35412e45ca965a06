# make lab      set up once, then open JupyterLab on the lessons   (make lab ARGS="--no-browser --port 9999")
# make test     set up once, then run the tests; live on a GPU     (make test ARGS="-k profile")
# make record   record the lessons on this machine's GPU           (make record ARGS="start_here")
# make bench    time the course beside what it grew from          (results in benchmarks/results)
# make doctor   say what this machine can do
# make clean    remove the set-up

PYTHON ?= python3
RUN := .venv/bin/python -m

# a set-up of another place, or one whose Python is gone, is no set-up
ifneq ($(shell .venv/bin/python -c pass 2>/dev/null && cat .venv/ready 2>/dev/null),$(CURDIR))
$(shell rm -f .venv/ready)
endif

.PHONY: lab test record bench doctor clean

lab: .venv/ready
	$(RUN) jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(ARGS)

test: .venv/ready
	$(RUN) pytest $(ARGS)

record: .venv/ready
	$(RUN) helpers.record $(ARGS)

bench: .venv/ready
	$(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[bench]"
	$(RUN) benchmarks $(ARGS)

doctor: .venv/ready
	@$(RUN) helpers.doctor

# ready is written last: a set-up that failed or was interrupted starts again from nothing
.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'The course needs Python 3.11 or newer: make PYTHON=...')"
	$(PYTHON) -m venv --clear .venv
	$(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@echo "$(CURDIR)" > .venv/ready

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis *.egg-info
