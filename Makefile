# Two commands do all the set-up on a machine that has only Python and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests run in parallel processes: more threads than cores in each only makes them wait for each other.
export OMP_NUM_THREADS ?= 1
# Of what is installed a sixth is ever imported: it is compiled then, and kept for the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-integrations test-newest test-oldest test-more torture exhibits docs lint clean

$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Holotype needs Python 3.11 or newer; name one with make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	.ci/install $(BIN)/python
	touch $(READY)

demo: $(READY)  ## discover the categories of the embedded sample, and score them
	env -u OMP_NUM_THREADS $(BIN)/python -m holotype demo

# A process that breaks down ends the run, and is told: pytest-xdist 3.8 waits for ever after it has replaced one.
PYTEST := -m pytest -n 2 --dist loadfile --max-worker-restart 0
test: $(READY)  ## the whole test suite, without clusters, trackers and other foreign packages
	$(BIN)/python $(PYTEST) -m 'not ray and not trackers and not packages'

INTEGRATIONS := pydicom label-studio-sdk datumaro fiftyone python-dwca-reader open_clip_torch
WITH := $(VENV)-integrations/bin/python
test-integrations: $(READY)  ## tests on a Ray cluster of this machine, with trackers and the packages that read our exports
	test -x $(WITH) || $(PYTHON) -m venv $(VENV)-integrations
	$(WITH) -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,trackers]'
	$(WITH) -m pip install --quiet --disable-pip-version-check --no-compile $(INTEGRATIONS)
	$(WITH) -m pip install --quiet --disable-pip-version-check --no-deps axe-playwright-python
	$(WITH) $(PYTEST) -m 'ray or trackers or packages'
	$(WITH) -m pytest tests/studio/test_folder_journey.py -k audit

# By hand, before a release. The environments of the first two are kept for the next time.
test-newest: VERSIONS = --upgrade --upgrade-strategy eager
test-oldest: VERSIONS = -c oldest.txt
test-newest test-oldest: test-%:  ## the tests with the newest, or oldest, versions that pyproject.toml allows
	test -x $(VENV)-$*/bin/python || $(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(VERSIONS) -e '.[dev,docs]'
	$(VENV)-$*/bin/python $(PYTEST)

test-more: $(READY)  ## the tests in another order, property tests with 20 times the examples and other seeds
	$(BIN)/python $(PYTEST) --hypothesis-profile more --shuffle "$$(date +%s)"

MINUTES ?= 5
torture: $(READY)  ## try to break it for MINUTES=5 minutes; the record goes to torture.json
	$(BIN)/python -m tools.torture --minutes $(MINUTES) --record torture.json

exhibits: $(READY)  ## rebuild the tables of the documents from experiments/results/
	$(BIN)/python experiments/exhibits.py

docs: $(READY)  ## the documentation as a site that opens from disk: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(VENV)-integrations $(VENV)-newest $(VENV)-oldest site .mypy_cache .ruff_cache .pytest_cache
