# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow check bench clean
.DEFAULT_GOAL := help

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("metaharness needs Python 3.11 or newer: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local]'
	$(BIN)/metaharness models fetch smollm2-135m
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local,dev]'
	touch $@

demo: $(VENV)/.installed  ## Evolve a harness around a small local model, in about ten minutes
	$(BIN)/metaharness demo

test: $(VENV)/.installed-dev  ## Run the quick tests
	$(BIN)/pytest -m "not slow"

test-slow: $(VENV)/.installed-dev  ## Run the slow tests
	$(BIN)/pytest -m slow

check: $(VENV)/.installed-dev  ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev  ## Run all benchmarks
	$(BIN)/python -m tests.benchmarks

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
