# Two commands do all the set-up on a machine that has only Python and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs
# Tests run in parallel processes: more threads than cores in each only makes them wait for each other.
export OMP_NUM_THREADS ?= 1
# Of what is installed a sixth is ever imported: it is compiled then, and kept for the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test torture exhibits docs lint clean

# LOCK=requirements.lock installs exactly what is locked there, files checked by their hashes: Linux, x86-64, Python 3.11,
# where pip finds the CPU build of torch. Without it pip takes the newest versions that the package allows.
LOCK ?=

$(READY): pyproject.toml constraints.txt $(LOCK)
	$(PYTHON) -c 'import sys; sys.exit("Holotype needs Python 3.11 or newer; name one with make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifeq ($(LOCK),)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
else
	.ci/install $(LOCK) $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
endif
	touch $(READY)

$(DOCS_READY): $(READY)
ifeq ($(LOCK),)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[docs]'
endif
	touch $(DOCS_READY)

demo: $(READY)  ## discover the categories of the embedded sample, and score them
	env -u OMP_NUM_THREADS $(BIN)/python -m holotype demo

# A process that breaks down ends the run, and is told: pytest-xdist 3.8 waits for ever after it has replaced one.
test: $(READY)  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0

MINUTES ?= 5
torture: $(READY)  ## try to break it for MINUTES=5 minutes; the record goes to torture.json
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --record torture.json

exhibits: $(READY)  ## rebuild the tables of the documents from experiments/results/
	$(BIN)/python experiments/exhibits.py

docs: $(DOCS_READY)  ## the documentation as a site that opens from disk: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
