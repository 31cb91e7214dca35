# Every target makes .venv by itself, and installs again only when pyproject.toml or constraints.txt change.
# PYTHON is the first one on the PATH that the dependencies support; name another with `make PYTHON=...`.
IS_SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14,$(shell $(name) -c '$(IS_SUPPORTED)' >/dev/null 2>&1 && echo $(name))))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Idle OpenMP threads should sleep, not spin: on a shared machine spinning costs more than it saves.
export OMP_WAIT_POLICY := passive

.PHONY: help setup tour test test-fast test-full check bench

help:
	@echo "make setup      make .venv and install everything"
	@echo "make tour       the whole chain on phantoms; ends with the path of a page"
	@echo "make test       the tests that every commit must pass, about 6 minutes"
	@echo "make test-fast  without training, servers, other processes and real data, about 2 minutes"
	@echo "make test-full  also the training of every model family, benchmarks, experiments and several processes"
	@echo "make check      lint, formatting, types, direction of imports"
	@echo "make bench      every benchmark"

setup: $(STAMP)

# torch is installed first, so that the resolver keeps this build instead of fetching CUDA libraries. torchattacks, an
# oracle of the tests, is installed without its dependencies: torchvision breaks transformers beside a CPU build of torch.
# The stamp is written last, so a failed install is repeated.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@if test -x $(BIN)/python; then python=$(BIN)/python; else python="$(PYTHON)"; fi; \
	  if test -z "$$python"; then found="none is on the PATH"; \
	  elif "$$python" -c '$(IS_SUPPORTED)'; then found=; \
	  else found="$$python is $$("$$python" --version 2>&1)"; fi; \
	  test -z "$$found" || { echo "cxrlab needs Python 3.11, 3.12, 3.13 or 3.14, and $$found. Install one, or name one" \
	    "with make PYTHON=/path/to/python3.12 (delete $(VENV) if another Python made it)." >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@$(PIP) -e ".[models,serve,tables,scale,dev]"
	@$(PIP) --no-deps "$$(grep '^torchattacks==' constraints.txt)"
	@touch $@

tour: $(STAMP)
	@$(BIN)/cxrlab tour

# Two workers with one thread each, for two cores. Tests of a file stay together, because they share their setup.
# Modules are compiled once, not by every process that a test starts.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test: $(STAMP)
	@$(PYTEST) -m "not full"

test-fast: $(STAMP)
	@$(PYTEST) -m "not full and not slow and not real_data"

test-full: $(STAMP)
	@$(PYTEST)

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_architecture.py

bench: $(STAMP)
	@set -e; for script in benchmarks/*.py; do \
	  test -e "$$script" || continue; echo "== $$script"; $(BIN)/python "$$script"; done
