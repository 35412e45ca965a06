# make lab      set up once, then open your copy of the lessons    (make lab ARGS="--no-browser --port 9999")
# make progress say which exercises you have solved
# make test     set up once, then run the tests; live on a GPU     (make test ARGS="-k profile")
# make record   record the lessons on this machine's GPU           (make record ARGS="start_here")
# make bench    time the course beside what it grew from          (results in benchmarks/results)
# make site     build the lessons as web pages                  (docs/_build/html)
# make readme   write the README's picture and tables again
# make new-lesson NAME=verb_object   begin a lesson: its two notebooks and its scenario
# make links    write today's numbers of the lessons into every link
# make renumber ARGS="choose_api 5"  give a lesson a new number; the others close up
# make works-on run every lesson live, and keep what it took   (traces/works_on.json)
# make pins     resolve the tested versions anew                  (constraints.txt)
# make doctor   say what this machine can do
# make clean    remove the set-up

PYTHON ?= python3
RUN := .venv/bin/python -m

# a set-up of another place, or one whose Python is gone, is no set-up
ifneq ($(shell .venv/bin/python -c pass 2>/dev/null && cat .venv/ready 2>/dev/null),$(CURDIR))
.PHONY: .venv/ready
endif

.PHONY: lab progress test record bench site readme new-lesson links renumber works-on pins doctor clean

lab: .venv/ready
	@$(RUN) course.lab $(ARGS)

progress: .venv/ready
	@$(RUN) course.progress

test: .venv/test
	$(RUN) pytest $(ARGS)

record: .venv/ready
	$(RUN) course.record $(ARGS)

bench: .venv/bench
	$(RUN) benchmarks $(ARGS)

site: .venv/test
	$(RUN) docs.pages
	$(RUN) sphinx --quiet --fail-on-warning --keep-going -c docs docs/_build/source docs/_build/html
	@echo "The site is in docs/_build/html."

readme: .venv/test
	$(RUN) docs.readme

new-lesson: .venv/ready
	@$(RUN) course.commands.new_lesson $(NAME)

links: .venv/ready
	@$(RUN) course.commands.renumber

renumber: .venv/test
	@$(RUN) course.commands.renumber $(ARGS)
	$(RUN) docs.readme

works-on: .venv/works-on
	$(RUN) course.works_on

pins: .venv/test
	.venv/bin/uv pip compile pyproject.toml --extra test --extra bench --upgrade --quiet \
	    --python-version 3.11 --python-platform linux --output-file constraints.txt

doctor: .venv/ready
	@$(RUN) course.doctor

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) course/set_up.py

# what only tests and the site, live runs of all lessons, and the benchmark need
.venv/test .venv/works-on .venv/bench: .venv/%: .venv/ready
	@$(PYTHON) course/set_up.py $*

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis *.egg-info docs/_build
