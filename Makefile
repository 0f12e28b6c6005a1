# What a person or CI does here, each by one word. Every target makes the environment first if it must.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

STAMP := .venv/.setup-stamp
# Set-up notes there which Java to use where Spark would not find it by itself, and which uv.
RUN := . .venv/env.sh &&
BIN := .venv/bin
TESTARGS ?=
BENCHARGS ?=

export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/.venv/bin/python

# The folders that hold Python: mypy refuses a package without any.
TYPED = -p tidelog $(foreach d,tests examples benchmarks,$(if $(shell find $(d) -name '*.py' 2>/dev/null | head -n 1),-p $(d)))

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## make .venv from the lock, with uv and Java found or installed
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "setup: .venv is up to date",:)

$(STAMP): pyproject.toml uv.lock scripts/setup.sh
	@bash scripts/setup.sh

.PHONY: fmt
fmt: setup ## format the code and sort its imports
	$(BIN)/ruff check --quiet --select I --fix .
	$(BIN)/ruff format .

.PHONY: lint
lint: setup ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: type
type: setup ## check types, strictly, of the packages, tests, examples and benchmarks
	$(BIN)/mypy $(TYPED)

# Spark's classes, ready to be mapped into memory: the dozens of JVMs of the tests start in half the time.
CLASSES := .venv/spark-classes.jsa

$(CLASSES): $(STAMP) tests/class_archive.py
	$(RUN) $(BIN)/python -m tests.class_archive $@

.PHONY: class-archive
class-archive: setup $(CLASSES)

# Two processes share each lane, a test file at a time; TESTWORKERS=0 runs it in one process, for a debugger.
TESTWORKERS ?= 2
PYTEST = $(RUN) SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$(CURDIR)/$(CLASSES) -Xlog:disable" \
	$(BIN)/pytest -n $(TESTWORKERS) --dist loadfile --no-loadscope-reorder
FAST = not (spark or server or crash or interop or simulation or full or nightly)

.PHONY: test-fast
test-fast: setup ## run the tests that need no Spark, server, crash or other engine, and few seeds of the simulation
	$(PYTEST) -m "$(FAST)" $(TESTARGS)

.PHONY: test
test: setup $(CLASSES) ## run each capability's main path, as CI does; TESTARGS="tests/log -k replay" runs a part
	$(PYTEST) $(TESTARGS)

.PHONY: test-full
test-full: setup $(CLASSES) ## run all tests but the nightly ones
	export TESTS_EXAMPLES=100; $(PYTEST) -m "not nightly" $(TESTARGS)

# Any supported Spark, in an environment of its own: .venvs/spark-4.0 and so on, with the other packages of the lock.
SPARK ?= 4.0
RELEASE_4.0 := 4.0.5
RELEASE_4.1 := 4.1.4
RELEASE_4.2 := 4.2.1
RELEASE_4.3 := 4.3.0
SPARK_VENV = $(CURDIR)/.venvs/spark-$(SPARK)
SPARK_STAMP = $(SPARK_VENV)/.stamp-$(RELEASE_$(SPARK))
# PySpark below 4.2 leaves sockets to the garbage collector.
SPARK_PYTEST = $(RUN) PYTHONPATH=$(CURDIR) PYSPARK_PYTHON=$(SPARK_VENV)/bin/python \
	PYSPARK_DRIVER_PYTHON=$(SPARK_VENV)/bin/python $(SPARK_VENV)/bin/python -m pytest -p no:cacheprovider \
	-W "ignore:unclosed <socket:ResourceWarning"

$(SPARK_STAMP): $(STAMP)
	@test -n "$(RELEASE_$(SPARK))" || { echo "SPARK is 4.0, 4.1, 4.2 or 4.3, not $(SPARK)" >&2; exit 1; }
	$(RUN) UV="$$UV" bash scripts/spark_environment.sh "$(SPARK_VENV)" "$(RELEASE_$(SPARK))"
	@touch $@

.PHONY: spark-environments
spark-environments: setup ## make the environments of the oldest and the newest Spark, which CI uses
	@for release in 4.0 4.3; do $(MAKE) --no-print-directory spark-environment SPARK=$$release || exit 1; done

.PHONY: spark-environment
spark-environment: setup $(SPARK_STAMP)

.PHONY: test-spark
test-spark: setup $(SPARK_STAMP) ## run the streaming tests on another Spark: SPARK=4.0, 4.1, 4.2 or 4.3
	$(SPARK_PYTEST) -m "not full and not nightly" $(or $(TESTARGS),tests/streaming)

.PHONY: test-oldest
test-oldest: ## run the short set on the oldest Spark, as CI does
	@$(MAKE) --no-print-directory test-spark SPARK=4.0 TESTARGS='-m "oldest and not full" tests/streaming'
	@TESTS_SOURCE=python $(MAKE) --no-print-directory test-spark SPARK=4.0 \
		TESTARGS='-m "oldest and not full" tests/streaming/test_limits_and_restarts.py'

.PHONY: test-newest
test-newest: ## run the same set on the newest Spark, as CI does: the rest runs on the one that delta-spark has
	@$(MAKE) --no-print-directory test-spark SPARK=4.3 TESTARGS='-m "oldest and not full" tests/streaming'

.PHONY: test-python-source
test-python-source: setup $(CLASSES) ## run the streaming tests over the Python source that Spark Connect has
	export TESTS_SOURCE=python; $(PYTEST) -m "not full and not nightly" $(or $(TESTARGS),tests/streaming)

.PHONY: where-it-runs
where-it-runs: setup ## try each capability on each Spark, and make the README's table of it (about 20 minutes)
	@for release in 4.0 4.1 4.2 4.3; do $(MAKE) --no-print-directory test-spark SPARK=$$release TESTARGS=--version; done
	$(RUN) $(BIN)/python -m scripts.where_it_runs

.PHONY: nightly
nightly: setup ## run the random and exhaustive tests, and the further shapes of long ones
	$(RUN) TESTS_RANDOM=1 TESTS_EXAMPLES=100 $(BIN)/pytest -m "nightly or hypothesis" $(TESTARGS)

.PHONY: suites-spark
suites-spark: setup ## run Spark's own suites of UPDATE, DELETE and MERGE on tables of tidelog, and write the page of results
	$(RUN) $(BIN)/python -m tests.spark_suites $(SUITESARGS)

SIM_SEEDS ?= 1000

.PHONY: sim
sim: setup ## simulate SIM_SEEDS=1000 worlds of writers, faults and clean-up; SIM_SEED=123 repeats one of them
	$(RUN) $(BIN)/python -m tests.simulation --seeds $(SIM_SEEDS) $(SIMARGS)

SOAK_MINUTES ?= 30

.PHONY: soak
soak: setup ## run everything at once on one table for SOAK_MINUTES=30, with kills, and account for every row
	$(RUN) $(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES) $(SOAKARGS)

.PHONY: check
check: lint type test ## lint, type and test

.PHONY: demo
demo: setup ## run the flights example from end to end
	$(RUN) $(BIN)/python examples/flights/demo.py

.PHONY: demo-kafka
demo-kafka: setup ## run the Kafka example from end to end; fetches a broker unless Docker runs
	$(RUN) $(BIN)/python examples/kafka/demo.py

.PHONY: demo-follow
demo-follow: setup ## keep a second table up to date from updates and deletes, through kills, and compare
	$(RUN) $(BIN)/python examples/follow/demo.py

.PHONY: demo-update
demo-update: setup ## run UPDATE and DELETE beside a stream and a compaction, and print the conflict ledger
	$(RUN) $(BIN)/python examples/update_beside_stream/demo.py

.PHONY: demo-pipeline
demo-pipeline: setup ## run a Spark Declarative Pipeline with AutoCDC, through kills and a full refresh, and compare
	$(RUN) $(BIN)/python examples/pipeline/demo.py

CDC_SECONDS = $(or $(SECONDS),90)

.PHONY: demo-cdc
demo-cdc: setup ## follow a PostgreSQL database through Debezium for SECONDS=90, through kills, and compare
	$(RUN) $(BIN)/python examples/cdc/demo.py --seconds $(CDC_SECONDS)

.PHONY: cdc-services
cdc-services: setup ## run Kafka, and Kafka Connect with Debezium, until Ctrl-C; SERVICESARGS="--kafka-port 9192"
	$(RUN) $(BIN)/python -m examples.cdc.services $(SERVICESARGS)

.PHONY: demo-clean
demo-clean: setup ## remove what the demos wrote
	$(RUN) $(BIN)/python examples/cdc/demo.py --clean
	$(RUN) $(BIN)/python examples/kafka/demo.py --clean
	$(RUN) $(BIN)/python examples/follow/demo.py --clean
	$(RUN) $(BIN)/python examples/update_beside_stream/demo.py --clean
	$(RUN) $(BIN)/python examples/pipeline/demo.py --clean
	$(RUN) $(BIN)/python examples/flights/demo.py --clean

.PHONY: bench
bench: bench-log bench-conflict bench-sink bench-feed bench-compaction bench-upsert bench-cdc ## run all benchmarks; each prints JSON lines, and a table on stderr

.PHONY: bench-log
bench-log: setup ## measure the log beside deltalake and delta-spark; BENCHARGS="--files 100000" for less
	@$(RUN) $(BIN)/python -m benchmarks.log $(BENCHARGS)

.PHONY: bench-conflict
bench-conflict: setup ## measure writers in each other's way, beside delta-spark; BENCHARGS="--seconds 10" for less
	@$(RUN) $(BIN)/python -m benchmarks.conflict $(BENCHARGS)

.PHONY: bench-sink
bench-sink: setup ## measure the sink beside Spark's parquet sink and delta-spark's; BENCHARGS="--no-delta" for less
	@$(RUN) $(BIN)/python -m benchmarks.sink $(BENCHARGS)

.PHONY: bench-feed
bench-feed: setup ## measure reading rows and changes beside deltalake, Polars and delta-spark; BENCHARGS="--rows 1000000" for less
	@$(RUN) $(BIN)/python -m benchmarks.feed $(BENCHARGS)

.PHONY: bench-compaction
bench-compaction: setup ## measure compaction beside deltalake and delta-spark; BENCHARGS="--no-delta" for less
	@$(RUN) $(BIN)/python -m benchmarks.compaction $(BENCHARGS)

.PHONY: bench-upsert
bench-upsert: setup ## measure upserts by key beside deltalake and delta-spark; BENCHARGS="--rows 1000000" for less
	@$(RUN) $(BIN)/python -m benchmarks.upsert $(BENCHARGS)

.PHONY: bench-cdc
bench-cdc: setup ## measure change data capture beside delta-spark's MERGE; BENCHARGS="--no-delta" for less
	@$(RUN) $(BIN)/python -m benchmarks.cdc $(BENCHARGS)


# The docs' packages are not in the group dev, so set-up takes them out again: the stamp must be newer than its stamp.
DOCS_STAMP := .venv/.docs-stamp

$(DOCS_STAMP): $(STAMP)
	$(RUN) unset VIRTUAL_ENV && UV_PROJECT_ENVIRONMENT=.venv "$$UV" sync --quiet --frozen --group dev --group docs
	@touch $@

.PHONY: docs
docs: setup $(DOCS_STAMP) ## build the documentation into build/site, check its links and its search
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(RUN) $(BIN)/pytest -q tests/test_site.py
	@echo "open build/site/index.html"

.PHONY: docs-serve
docs-serve: setup $(DOCS_STAMP) ## show the documentation at http://127.0.0.1:8000 while you write it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

.PHONY: build
build: setup ## build the wheel and the source distribution into dist/
	rm -rf dist build
	$(RUN) "$$UV" build --quiet
	@ls dist

.PHONY: clean
clean: ## remove caches and build outputs; keeps .venv
	rm -rf dist build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -path ./.venv -prune -o -path ./.uv -prune -o -path ./.git -prune -o -name __pycache__ -type d -exec rm -rf {} +
