# make partitions   sets everything up and plays the partition scenarios that fit in 15 minutes
# make nightly      sets everything up and plays what fits into 150 minutes of all suites, longest not played first
# make test         sets everything up and runs the project's own tests
# make setup        only sets everything up
# make images       builds container images where they cannot be pulled: those of VERSIONS="3.10.8 4.0.5", or all
# make engine       only provides a container engine for them
# make engine-stop  ends the container engine, if it was set-up that started it
# make fault-file   makes a first fault file (TO=incident.yaml) FROM="logs/ timeline.csv"
# make lint         style, format and types
# make mutants      changes the checkers in one place at a time, and names the changes that their tests do not notice
# make clean        removes what set-up made in the checkout
# Options for pytest go in ARGS, a Python in PYTHON, a broker in RABBITMQ_HOME.

ARGS ?=
VERSIONS ?=
FROM ?=
TO ?= incident.yaml

pytest := .venv/bin/python -m pytest

.PHONY: partitions nightly test fault-file lint mutants setup images engine engine-stop clean

partitions: setup
	@left=$$($(pytest) -q --collect-only -m "partitions and slow" suites | grep -c '::'); \
	echo "The scenarios that fit in 15 minutes are played; $$left are marked slow and left out" \
	     "(all of them: .venv/bin/pytest -m partitions suites)."
	$(pytest) -m "partitions and not slow" suites $(ARGS)

nightly: setup
	$(pytest) --budget-min 140 --endurance-min 10 suites $(ARGS)

test: setup
	$(pytest) tests $(ARGS)

fault-file: setup
	.venv/bin/python -m faults.from_evidence $(FROM) --to $(TO) $(ARGS)

lint:
	@setup/start python
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy

mutants: setup
	.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt mutmut
	.venv/bin/python -m mutmut run --max-children 1 $(ARGS)
	.venv/bin/python -m mutmut results

setup:
	@setup/start

images:
	@setup/start images $(VERSIONS)

engine engine-stop:
	@setup/start $@

clean: engine-stop
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants
