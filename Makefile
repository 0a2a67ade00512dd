# Everything runs in a virtual environment of its own, .venv, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench paper docs clean

demo: $(READY)  ## the main job on real data
	@$(BIN)/python examples/demo.py

test: $(READY) lint  ## all checks: lint, types, import contract, tests with coverage
	$(BIN)/python -m pytest -n auto --cov --cov-report=term

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## speed and memory, as ratios; takes a few minutes
	@$(BIN)/python benchmarks/bench.py

paper: $(READY)  ## the paper's experiments, claims and report, in paper-results; up to an hour
	$(BIN)/expunge paper run
	$(BIN)/expunge paper check
	$(BIN)/expunge paper report

docs: $(READY)  ## the API from the docstrings, as HTML in build/docs
	$(BIN)/pdoc --docformat numpy --output-directory build/docs expunge expunge.testing expunge.errors

clean:
	rm -rf $(VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV): about a minute"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,docs]'
	@touch $(READY)
