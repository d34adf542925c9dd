# make demo    installs into .venv and shows the latency of a real network on this machine
# make test    the same with the development tools: style, types, import layers, tests
#              (HYBRIDLAT_SLOW_TESTS=1 also those that take the better part of a minute), as on a
#              machine whose CPU nobody knows; IDENTITY=epyc-26-2: the shipped pack's, arm: one of ARM
# make test-arm  the tests as on an ARM CPU
# make fuzz    tries mutated inputs (KIND=networks SEED=7 COUNT=10000) and shows what is no answer
# make drift   shows which predictions of the shipped networks moved; WHY="the reason" accepts it
# make size    counts lines and modules by room, import circles, and words of the pages
# make docs    writes the site of the pages to build/site, without a network
# make wheel-check  the wheel in an empty environment does all that the pages say (some minutes)
# make matrix  the tests on every Python 3.11 to 3.13 there is (TESTS=tests/graph: only those)
# make oldest  the tests with the lowest versions that pyproject.toml allows (TESTS= as above)
# make newest  the same with the newest versions that the index has
# make clean   removes .venv and what the tools left behind
# PYTHON=/path/to/python chooses the interpreter (3.11 to 3.13).

VENV := .venv
BIN := $(VENV)/bin
NETWORK ?= data/nets/resnet18.onnx
WORKERS ?= 4
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The first interpreter on the PATH that starts (version managers leave shims that do not), is of a
# supported version and can make a virtual environment.
CANDIDATES := $(PYTHON) python3.11 python3.12 python3.13 python3 python
SUITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

VERSIONS := 3.11 3.12 3.13
TESTS ?= tests

KIND ?= networks
SEED ?= 0
COUNT ?= 10000

export IDENTITY ?= unknown

.PHONY: demo test test-arm install check style tests fuzz drift size docs wheel-check matrix oldest newest clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed
	$(BIN)/hybridlat predict $(NETWORK) --tolerance 15%

install: $(VENV)/.installed

test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory check

test-arm: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory tests IDENTITY=arm

check:
	$(MAKE) --no-print-directory -j 2 tests style

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests:
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.driver $(KIND) $(SEED) $(COUNT)

drift: export HYBRIDLAT_IDENTITY := tests/fakes/identities/$(IDENTITY)
drift: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.drift $(if $(WHY),--why "$(WHY)")

size: | $(BIN)/python
	@$(BIN)/python tests/size.py

docs: $(VENV)/.installed-dev
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -c docs -d build/doctrees . build/site
	@echo "Open build/site/index.html"

# The wheel is installed outside the repository, and the pages' commands are those of that
# installation; only the tests that give them are the repository's.
wheel-check: $(VENV)/.installed-dev
	rm -rf build/wheel
	$(PIP) wheel --no-deps --wheel-dir build/wheel .
	outside=$$(mktemp -d) && trap 'rm -rf "$$outside"' EXIT && \
	$(BIN)/python -m venv "$$outside/venv" && \
	"$$outside/venv/bin/python" -m pip --disable-pip-version-check --quiet \
	  install build/wheel/*.whl 'optuna>=5.0' && \
	HYBRIDLAT_PYTHON="$$outside/venv/bin/python" OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n $(WORKERS) tests/test_pages.py tests/test_wheel.py

# Interpreters on the PATH, then those of pyenv; one environment for each, inside $(VENV).
matrix:
	@for version in $(VERSIONS); do \
	  found=; \
	  for candidate in python$$version $(HOME)/.pyenv/versions/$$version*/bin/python; do \
	    if "$$candidate" -c "import sys, venv, ensurepip; \
	        sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" >/dev/null 2>&1; then \
	      found=$$candidate; break; \
	    fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "Python $$version is not installed: skipped"; continue; fi; \
	  folder=$(VENV)/matrix/$$version; stamp=$$folder/.installed; \
	  echo "Python $$version: $$found"; \
	  if ! [ "$$stamp" -nt pyproject.toml ]; then \
	    "$$found" -m venv "$$folder" || exit 1; \
	    "$$folder/bin/python" -m pip --disable-pip-version-check --quiet \
	      install --editable '.[dev]' || exit 1; \
	    touch "$$stamp"; \
	  fi; \
	  OMP_NUM_THREADS=1 "$$folder/bin/python" -m pytest -n $(WORKERS) $(TESTS) || exit 1; \
	done

# The lowest and the newest versions of what hybridlat needs, each in an environment of its own.
oldest newest: | $(BIN)/python
	$(BIN)/python -m venv --clear $(VENV)/$@
	$(BIN)/python tests/oldest.py > $(VENV)/$@/oldest.txt
	$(VENV)/$@/bin/python -m pip --disable-pip-version-check --quiet install --upgrade \
	  $(if $(filter oldest,$@),--constraint $(VENV)/$@/oldest.txt) --editable '.[dev]'
	OMP_NUM_THREADS=1 $(VENV)/$@/bin/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

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
