# make try          sets up what one scenario needs and plays it: about three minutes the first time
# make partitions   sets everything up and plays the quick partition scenarios, about 17 minutes on two cores
# make loads        sets everything up and plays the loads of the case studies, about an hour on two cores
# make nightly      sets everything up and plays what fits into BUDGET_MIN=140 of all suites, longest not played first
# make check        lint, types, and the tests that need no broker: under 3 minutes on two cores
# make test         sets everything up; what make check does, and the core on real brokers: some 12 minutes on two cores
# make test-all     the other parts of the tests that were not green on this commit yet, for hours; PART="engine" for one, ARGS as below
# make setup        only sets everything up
# make images       builds container images where they cannot be pulled: those of VERSIONS="3.10.8 4.0.5", or all
# make perf-test    fetches PerfTest, whose numbers sweeps and benchmarks set beside ours; Java and Maven are needed
# make engine       only provides a container engine for them
# make engine-stop  ends the container engine, if it was set-up that started it
# make kubernetes   brings up a Kubernetes with three brokers on this machine, for trying: Debian, root and Go are needed
# make kubernetes-suite  makes an image of this checkout for its pods (local/resilience:1)
# make kubernetes-stop  ends it
# make fault-file   makes a first fault file (TO=incident.fault.yaml) FROM="logs/ timeline.csv"
# make trend        makes a page (TO=trend.html) of what the nights in the folder NIGHTS=nights say together
# make lint         style, format and types
# make mutants      changes the checkers in one place at a time, and names the changes that their tests do not notice
# make clean        removes what set-up made in the checkout
# Options for pytest go in ARGS, a Python in PYTHON, a broker in RABBITMQ_HOME.

ARGS ?=
PART ?=
BUDGET_MIN ?= 140
VERSIONS ?=
FROM ?=
TO ?=
NIGHTS ?= reports/nights

pytest := .venv/bin/python -m pytest
at_once := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: try partitions loads nightly trend check test test-all fault-file lint mutants python setup perf-test images engine engine-stop kubernetes kubernetes-suite kubernetes-stop clean

try:
	@setup/start try
	.venv/bin/python -m rabbitmq_resilience try $(ARGS)

partitions: setup
	@left=$$($(pytest) -q --collect-only -m "partitions and slow" suites | grep -c '::'); \
	echo "The quick scenarios are played; $$left are marked slow and left out" \
	     "(all of them: .venv/bin/pytest -m partitions suites)."
	$(pytest) -m "partitions and not slow" suites $(ARGS)

loads: setup
	$(pytest) -m loads suites $(ARGS)

nightly: setup
	.venv/bin/python -m rabbitmq_resilience nightly --limit-min 200 --budget-min $(BUDGET_MIN) --each-home --endurance-min 10 \
	    suites faults/incidents faults/unsafe faults/coverage $(ARGS)

check: lint
	$(pytest) $(at_once) --tier check tests $(ARGS)

test: setup lint
	$(pytest) $(at_once) --tier test tests $(ARGS)

test-all: setup
	.venv/bin/python -m tests.parts $(PART) $(if $(ARGS),-- $(ARGS))

fault-file: setup
	.venv/bin/python -m rabbitmq_resilience fault-file $(FROM) --to $(or $(TO),incident.fault.yaml) $(ARGS)

trend: setup
	.venv/bin/python -m rabbitmq_resilience trend $(NIGHTS) --to $(or $(TO),trend.html) $(ARGS)

lint: python
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy

mutants: setup
	.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check -c constraints.txt mutmut
	.venv/bin/python -m mutmut run --max-children 1 $(ARGS)
	.venv/bin/python -m mutmut results

python:
	@setup/start python

setup: python
	@setup/start

images:
	@setup/start images $(VERSIONS)

perf-test engine engine-stop kubernetes kubernetes-suite kubernetes-stop:
	@setup/start $@

clean: engine-stop kubernetes-stop
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants
