# Every target sets itself up: .venv is made from requirements/dev.lock when it is missing or when
# the lock has changed. Needed beforehand: Python 3.11 or newer and make.
#
#   make demo     two conversations in two processes; the second knows what was said in the first
#   make test     all tests, and those of the adapters again on the oldest frameworks they allow
#   make oldest   the adapters' tests on the oldest frameworks alone, and those of serialising on
#                 the pydantic between the two
#   make check    format, lint, types, layers, docs: what has to hold before a change lands
#   make bench    the figures of docs/performance.md, on this machine
#   make peers    .venv-peers with the libraries that make bench measures beside ours
#   make suites   LlamaIndex's own tests against our chat stores and memory (SOURCE=a clone of it)
#   make soak     the long campaigns: kill -9 while recording, several writers on one file
#   make docs     the documentation, in docs/_build
#   make lock     remake requirements/*.lock from pyproject.toml (make lock UPGRADE=1: newer versions)
#   make format   put the code into the form that make check asks for
#
# Settings: PYTHON=python3.12, VENV=folder, WORKERS=number of test processes, ARGS="more arguments".

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-oldest
OLDEST_READY := $(OLDEST)/.ready
BETWEEN := $(OLDEST)/pydantic-2.13
BETWEEN_READY := $(BETWEEN)/.ready
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo test oldest check bench peers suites soak docs lock format lint types layers docs-code generated clean

help:
	@sed -n 's/^#   //p' Makefile

$(READY): requirements/dev.lock pyproject.toml
	@PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh
	@touch $@

$(OLDEST_READY): requirements/oldest.lock pyproject.toml
	@PYTHON="$(PYTHON)" VENV="$(OLDEST)" LOCK=oldest scripts/setup.sh
	@touch $@

$(BETWEEN_READY): requirements/pydantic-2.13.lock $(OLDEST_READY)
	@rm -rf $(BETWEEN)
	@$(OLDEST)/bin/python -m pip -qq --disable-pip-version-check install \
		--require-hashes --no-deps --target $(BETWEEN) -r $<
	@touch $@

demo: $(READY)
	@$(BIN)/secondcall demo $(ARGS)

test: $(READY)
	$(PYTEST) -n $(WORKERS) $(ARGS)
	@$(MAKE) --no-print-directory oldest

oldest: $(OLDEST_READY) $(BETWEEN_READY)
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) $(ARGS) tests/adapters
	PYTHONPATH=$(BETWEEN) $(OLDEST)/bin/python -m pytest -n $(WORKERS) $(ARGS) \
		tests/adapters/llama_index/test_serialising.py

check: lint types layers docs docs-code generated
	@echo "check: all of it holds"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/pyright --warnings --pythonpath $(BIN)/python

layers: $(READY)
	$(PYTEST) -q tests/unit/test_layers.py tests/unit/test_public.py tests/unit/test_lock.py

docs: $(READY)
	$(BIN)/sphinx-build -q -E -b html -W --keep-going docs docs/_build/html

docs-code: $(READY)
	$(PYTEST) -q tests/docs

generated: $(READY)
	$(BIN)/python scripts/cli_docs.py --check

bench: $(READY)
	$(BIN)/python bench/run.py $(ARGS)

peers:
	@VENV=.venv-peers PYTHON="$(PYTHON)" scripts/peers.sh

suites: $(READY)
	@$(BIN)/python scripts/suites.py $(if $(SOURCE),--source "$(SOURCE)") $(ARGS)

soak: export SECONDCALL_KILL_ROUNDS ?= 200
soak: export SECONDCALL_CONTENTION_SECONDS ?= 30
soak: export SECONDCALL_CONTENTION_INCREMENTS ?= 200
soak: export SECONDCALL_KILL_STATE_ROUNDS ?= 100
soak: $(READY)
	$(PYTEST) $(ARGS) tests/acceptance/test_kill.py tests/acceptance/test_processes.py \
		tests/acceptance/test_state_processes.py tests/acceptance/test_dynamodb_processes.py \
		tests/acceptance/test_redis_processes.py
	$(PYTEST) $(ARGS) -m soak

lock:
	PYTHON="$(PYTHON)" scripts/lock.sh $(if $(UPGRADE),--upgrade)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf docs/_build dist build .pytest_cache .ruff_cache .hypothesis
