# Every target sets itself up: .venv is made once, and again when the pinned versions change. .venv-oldest
# has the oldest versions that the package accepts.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
OLDEST := .venv-oldest
# Packages are installed without bytecode. The first process that imports a module writes it; if that is
# forbidden, each process takes ten seconds to compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# Threads that spin while they wait are slow by factors where other processes run.
PATIENT := OMP_WAIT_POLICY=passive

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest lint types format benchmarks benchmarks-long tutorials pages docs release-check clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/'

demo: $(READY)  ## Real airfoils: lift-to-drag ratios with intervals, the search for the best, four figures
	$(PATIENT) $(BIN)/python -m gp_distributions.demo

# One thread for each process: more would wait for each other.
test: $(READY)  ## Run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses auto --dist worksteal

test-oldest: $(OLDEST)/.ready  ## Run the tests on the oldest versions that the package accepts
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -q --numprocesses auto --dist worksteal

lint: $(READY)  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## Check types
	$(BIN)/mypy

format: $(READY)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

INTEROP := .venv/interop
.PHONY: test-interop
# In an environment on top of .venv: anndata needs a pandas older than the one pinned.
test-interop: $(READY)  ## Test with Polars, PyArrow, anndata, shapely and Ax, which it installs
	$(PYTHON) -m venv $(INTEROP)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo $(INTEROP)/lib/python*/site-packages)/base.pth
	grep -v '^pandas==' constraints.txt > $(INTEROP)/constraints.txt
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check -c $(INTEROP)/constraints.txt "anndata>=0.12.19" "ax-platform>=1.3.1" pandas polars pyarrow shapely
	OMP_NUM_THREADS=1 $(INTEROP)/bin/python -m pytest -q tests/interop

benchmarks: $(READY)  ## Measure accuracy and speed; ARGS="--data-dir FOLDER" for image data of your own
	$(BIN)/python -m benchmarks $(ARGS)

benchmarks-long: $(READY)  ## Measure what takes hours; continues where it was stopped
	$(BIN)/python -m benchmarks --long $(ARGS)

tutorials: $(READY)  ## Run all notebooks, in place
	$(PATIENT) $(BIN)/python -m tutorials

pages: $(READY)  ## Write outputs of code into the pages of the documentation
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.outputs $(ARGS)

docs: $(READY)  ## Build the documentation in site/; broken links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release-check:  ## Build the wheel and the sdist in dist/, install each on its own, run README's example
	PYTHON=$(PYTHON) .ci/release-check

clean:  ## Remove the environments, builds and caches
	rm -rf .venv $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis figures site

$(READY): pyproject.toml constraints.txt
	$(call make-environment,.venv,constraints.txt)

# constraints-oldest.txt takes precedence; all else is as in constraints.txt.
$(OLDEST)/.ready: pyproject.toml constraints.txt constraints-oldest.txt
	mkdir -p build
	awk -F== '!($$1 in seen) {seen[$$1]; print}' constraints-oldest.txt constraints.txt > build/oldest.txt
	$(call make-environment,$(OLDEST),build/oldest.txt)

define make-environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, found %d.%d: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
$(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(2) -e ".[dev]"
@touch $@
endef
