# Every command does its own set-up: a private .venv, made once and renewed when pyproject.toml or
# constraints.txt change. `make help` lists the commands.
#
#   make test ARGS="-k detector -x"     ARGS go to the program that the target runs
#   make test PYTHON=python3.12         the interpreter that .venv is made from

VENV := .venv
RUN := $(VENV)/bin/python
ARGS ?=
PYTHON ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE  # or every process that a test starts compiles all of addml anew

is_usable := -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
has_cuda := -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null

pytest = $(RUN) -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile
install = $(RUN) -m pip install -qq --constraint $(VENV)/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-cluster test-all golden lint types format docs benchmark benchmark-large picture setup interpreter clean

help:  ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-core  ## Detect anomalies in a small data set and show what was found
	@$(RUN) -m addml demo $(ARGS)

test: setup  ## Run the tests, all but the long ones (five minutes on two cores)
	@$(pytest) -m 'not slow and not cluster' $(ARGS)

test-long: setup  ## Run the long tests: kills, served jobs, browsers, stored results, full grids (ten minutes)
	@$(pytest) -m 'slow and not cluster' $(ARGS)

test-cluster: $(VENV)/.installed-cluster  ## Run the tests with several processes and a Ray cluster on this machine (six minutes)
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -m cluster tests/cluster $(ARGS)

test-all: test test-long test-cluster  ## Run all tests

# The same interpreter and the same script with both trees: PYTHONPATH says whose addml is run.
golden: setup  ## Compare scores, reasons and --json with another commit's, bit by bit: make golden OLD=main (two minutes)
	@test -n "$(OLD)" || { echo "OLD is not given: name the commit to compare with, make golden OLD=main" >&2; exit 1; }
	@rm -rf build/golden && git worktree prune && git worktree add --quiet --detach build/golden/old "$(OLD)"
	@trap 'git worktree remove --force build/golden/old' EXIT; \
	PYTHONPATH="$(CURDIR)/build/golden/old/src" $(RUN) -m benchmarks.golden dump build/golden/old.json \
	&& PYTHONPATH="$(CURDIR)/src" $(RUN) -m benchmarks.golden dump build/golden/new.json \
	&& PYTHONPATH="$(CURDIR)/src" $(RUN) -m benchmarks.golden compare build/golden/old.json build/golden/new.json

lint: setup  ## Check style and formatting
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

types: setup  ## Check types
	$(RUN) -m mypy

format: setup  ## Format the code and mend what can be mended by itself
	$(RUN) -m ruff check --fix-only
	$(RUN) -m ruff format

docs: $(VENV)/.installed-docs  ## Make a site of docs/ and the docstrings, in build/docs
	@$(RUN) -m sphinx -q --fail-on-warning --keep-going docs build/docs $(ARGS) && echo build/docs/index.html

benchmark: $(VENV)/.installed-bench  ## Run the benchmarks
	@$(RUN) -m benchmarks $(ARGS)

benchmark-large: $(VENV)/.installed-bench  ## Fit and score 10, 20 and 50 million rows on disk (an hour, 25 GB)
	@$(RUN) -m benchmarks.large $(or $(ARGS),10 20 50)

picture: $(VENV)/.installed-core  ## Make the README's picture anew, from the demo's report (needs chromium)
	@folder=$$(mktemp -d) && (cd "$$folder" && "$(CURDIR)/$(RUN)" -m addml demo --quiet) \
	&& chromium --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update \
	    --disable-sync --hide-scrollbars --user-data-dir="$$folder/profile" --window-size=1280,850 \
	    --screenshot="$(CURDIR)/docs/images/report.png" "file://$$folder/addml-demo/breast-cancer.report.html" 2>/dev/null \
	&& rm -rf "$$folder" && echo docs/images/report.png

setup: $(VENV)/.installed  ## Make .venv with all that tests need (every command does so where needed)

interpreter:  ## Print the interpreter that .venv is made from
	@for python in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
	    if $$python $(is_usable); then echo $$python; exit 0; fi; \
	done; \
	echo "No usable Python: ADDML needs Python 3.11 or newer with its venv module" >&2; \
	echo "(on Debian and Ubuntu: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3.11" >&2; \
	exit 1

clean:  ## Remove .venv, caches and built files
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last, so that what was interrupted is done again.
#
# A python3 whose torch drives a CUDA device lends that torch to .venv. One that is itself a virtual
# environment cannot lend its packages, which is why the new environment is asked again.
$(VENV)/.created:
	@rm -rf $(VENV)
	@python=$(or $(PYTHON),python3); \
	if $$python $(is_usable) && $$python $(has_cuda); then \
	    $$python -m venv --system-site-packages $(VENV) && $(RUN) $(has_cuda) \
	    && echo "Using the torch with CUDA of $$python"; \
	fi || rm -rf $(VENV)
	@test -d $(VENV) || { python=$$($(MAKE) --silent --no-print-directory interpreter) && $$python -m venv $(VENV); }
	@touch $@

$(VENV)/constraints.txt: $(VENV)/.created constraints.txt
	@if grep -q 'include-system-site-packages = true' $(VENV)/pyvenv.cfg; \
	then grep -v '^torch==' constraints.txt; else cat constraints.txt; fi > $@

$(VENV)/.installed-core: $(VENV)/constraints.txt pyproject.toml
	@echo "Setting up $(VENV): half a minute the first time"
	@$(install) --no-compile --editable .  # what the demo imports is compiled then
	@touch $@

$(VENV)/.installed: $(VENV)/constraints.txt pyproject.toml
	@echo "Setting up $(VENV) with the tools for tests: a few minutes the first time"
	@$(install) --editable '.[dev]'
	@touch $(VENV)/.installed-core $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@$(install) --editable '.[dev,bench]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(install) --editable '.[dev,docs]'
	@touch $@

$(VENV)/.installed-cluster: $(VENV)/.installed
	@$(install) --editable '.[dev,ray]' daft dask distributed duckdb
	@touch $@
