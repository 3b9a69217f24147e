# make quickstart   set up and train on a real simulator (CPU, minutes)
# make test         set up and run the tests (CPU)
# make docs         write the pages that are made from docstrings
# make lint         format, lint, types, layer contracts
# make venv         set up only, with the developers' tools
# make clean        remove what these targets created; results/ stays

PYTHON ?= python3
VENV ?= .venv
# Test processes. Each runs torch on one thread.
JOBS ?= 2
# More arguments for pytest.
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -qq

.PHONY: quickstart test test-all docs lint venv clean
.DELETE_ON_ERROR:

quickstart: $(VENV)/.installed-run
	$(ensure-opengl)
	$(BIN)/joyrl train --preset quickstart

test: $(VENV)/.installed-dev
	$(ensure-opengl)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-all:
	$(MAKE) test ARGS="--exhaustive $(ARGS)"

# Pages made from docstrings; a test fails while one is stale.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m joyrlinf_core.plan.rules > docs/rules.md.new
	mv docs/rules.md.new docs/rules.md
	$(BIN)/python -m joyrlinf_core.config.reference > docs/reference/config.md.new
	mv docs/reference/config.md.new docs/reference/config.md

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

venv: $(VENV)/.installed-dev

# Stamps: pip runs again only when pyproject.toml changed.
$(VENV)/.installed-run: pyproject.toml | $(BIN)/python
	@echo "installing joyrl and Meta-World into $(VENV) (the first time takes minutes)"
	$(PIP) --editable '.[metaworld]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing joyrl, Meta-World and the test tools into $(VENV) (the first time takes minutes)"
	$(PIP) --editable '.[metaworld,dev]'
	@touch $(VENV)/.installed-run $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "joyrl needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
	  || { echo "this Python has no venv module; as root: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Headless OpenGL: one that works already, else Debian's package where it may be installed, else its
# name. Newer releases have no libosmesa6; there it is EGL with Mesa's software driver.
RENDERER = $(BIN)/python -c 'from joyrlinf_core.envs import opengl; print("renderer:", opengl.choose())'
define ensure-opengl
@$(RENDERER) 2>$(VENV)/opengl.log && exit; \
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  echo "no headless OpenGL library works; installing Debian's package"; \
  export DEBIAN_FRONTEND=noninteractive; \
  apt-get update -qq; \
  apt-get install -y -qq libosmesa6 || apt-get install -y -qq libegl1 libopengl0 libgl1-mesa-dri; \
  $(RENDERER) 2>$(VENV)/opengl.log && exit; \
fi >&2; \
echo "no headless OpenGL library works (reason: $(VENV)/opengl.log); as root:" \
  "apt-get install libosmesa6, or where that is gone libegl1 libopengl0 libgl1-mesa-dri" >&2; \
exit 1
endef

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
