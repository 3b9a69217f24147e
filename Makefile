# make quickstart   set up and train on a real simulator (CPU, minutes)
# make test         set up and run the tests (CPU)
# make lint         format, lint, types, layer contracts
# make venv         set up only, with the developers' tools
# make clean        remove what these targets created, results/ excepted

PYTHON ?= python3
VENV ?= .venv
# Test processes. Each runs torch on one thread.
JOBS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet

.PHONY: quickstart test lint venv opengl clean

quickstart: $(VENV)/.installed-run opengl
	$(BIN)/joyrl train --preset quickstart

test: $(VENV)/.installed-dev opengl
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

venv: $(VENV)/.installed-dev

# Headless OpenGL: one that works, else Debian's package when this is allowed, else its name.
opengl: | $(BIN)/python
	@$(BIN)/python -m joyrlinf_core.envs.opengl --install

# Stamps: pip runs again only when pyproject.toml changed.
$(VENV)/.installed-run: pyproject.toml | $(BIN)/python
	@echo "installing joyrl and Meta-World into $(VENV) (the first time downloads PyTorch)"
	$(PIP) --editable '.[metaworld]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing joyrl, Meta-World and the test tools into $(VENV)"
	$(PIP) --editable '.[metaworld,dev]'
	@touch $(VENV)/.installed-run $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "joyrl needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
	  || { echo "this Python has no venv module: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
