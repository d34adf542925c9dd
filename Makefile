# make demo   installs into .venv and shows the latency of a real network on this machine
# make test   the same with the development tools: style, types, import layers, tests
# make clean  removes .venv and what the tools left behind
# PYTHON=/path/to/python chooses the interpreter (3.11 to 3.13).

VENV := .venv
BIN := $(VENV)/bin
NETWORK ?= data/nets/resnet18.onnx
WORKERS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The first interpreter on the PATH that starts (version managers leave shims that do not), is of a
# supported version and can make a virtual environment.
CANDIDATES := $(PYTHON) python3.11 python3.12 python3.13 python3 python
SUITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

.PHONY: demo test install check clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed
	$(BIN)/hybridlat predict $(NETWORK) --tolerance 15%

install: $(VENV)/.installed

test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory check

check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

$(BIN)/python:
	@for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c '$(SUITS)' >/dev/null 2>&1; then \
	    echo "Making $(VENV) with $$candidate ($$("$$candidate" --version))"; \
	    exec "$$candidate" -m venv $(VENV); \
	  fi; \
	done; \
	echo "No Python 3.11, 3.12 or 3.13 with venv was found on the PATH: set PYTHON=/path/to/python" >&2; \
	exit 1

# A stamp is newer than pyproject.toml when all that it asks for is installed.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing hybridlat (about a minute)"
	$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing hybridlat and the development tools (a few minutes)"
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
