# Everything runs in the virtual environment .venv, which is created on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := .venv-lowest

.PHONY: demo serve-demo compare test quick lint lowest torture sanitize jose softhsm browser clients hosts load history callers long-calls bench quality scale choosing classes paper docs clean

demo: $(READY)  ## a vault from real data: train, erase, certify, verify, predict
	@$(BIN)/python examples/demo.py

serve-demo: $(READY)  ## a service for the demo's vault, with tokens; prints three commands to try; Ctrl-C stops it
	@$(BIN)/python examples/serve_demo.py

compare: $(READY)  ## compare models: error, time to train and to forget
	@$(BIN)/python examples/compare.py

softhsm: $(READY)  ## a certificate signed by a key in a PKCS #11 token; needs softhsm2 and opensc
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt python-pkcs11
	@$(BIN)/python examples/softhsm.py

test: $(READY) lint  ## all checks: lint, types, import contract, the core without its native kernels, all tests with coverage
	EXPUNGE_NATIVE=0 $(BIN)/python -m pytest -n auto --dist worksteal -q --cov --cov-report= --cov-fail-under=0 tests/core
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-append --cov-report=term

quick: $(READY) lint  ## while you work: lint, types, and every test that is not marked slow; a few minutes on two cores
	$(BIN)/python -m pytest -n auto -q -m "not slow and not torture"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lowest: $(LOWEST)/.ready  ## the quick tests with the oldest versions of everything that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -n auto -q -m "not slow and not torture"

torture: $(READY)  ## a vault killed 10,000 times, every fault at every file operation and call; more than an hour
	$(MAKE) --jobs=2 kills-1 kills-2
	PYTHONPATH=tests $(BIN)/python -m support.killing --kills 1000 --load
	$(BIN)/python -m pytest -n auto -m "torture or not torture" tests/vault/torture_faults.py
	$(BIN)/python -m pytest -n auto -m torture
	$(BIN)/python -m pytest -n auto -m "hypothesis and not torture" --hypothesis-profile torture

sanitize: $(READY)  ## the kernels' tests with the address and undefined behaviour sanitizers of gcc, one deletion in valgrind if it is there
	@rm -rf build/sanitized
	CFLAGS="-g -fsanitize=address,undefined -fno-sanitize-recover=undefined -DEXPUNGE_NO_CLONES" $(BIN)/python $(INSTALL) \
		--no-build-isolation --no-deps --target build/sanitized .
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
		PYTHONPATH=build/sanitized $(BIN)/python -m pytest -q -p no:cacheprovider tests/core/test_native.py
	@if command -v valgrind > /dev/null; then \
		PYTHONMALLOC=malloc valgrind --log-file=build/valgrind.log $(BIN)/python tests/support/one_deletion.py \
			&& ! grep -n "expunge_\|_native" build/valgrind.log \
			&& echo "valgrind: no errors in the kernels during one deletion"; \
	else echo "valgrind is not installed: one deletion was not checked"; fi

jose: $(READY)  ## Node judges what Python signed: its library jose, and the script of the page that checks receipts; needs npm
	@mkdir -p build/jose && cp tests/node/*.js* build/jose/
	@cd build/jose && npm install --no-audit --no-fund --no-package-lock --loglevel=error
	@PYTHONPATH=tests $(BIN)/python -m support.jose build/jose
	@cd build/jose && node compare.js cases.json $(CURDIR)/src/expunge/vault/certificates/check.html

browser: $(READY)  ## the dashboard in Chromium, driven by Playwright; installs nothing, but says what to install
	@PYTHONPATH=tests $(BIN)/python -m support.browser
	$(BIN)/python -m pytest -q -rs tests/server/test_browser.py

hosts: $(READY)  ## a cluster on two hosts, which are network namespaces, and a cable that is cut; needs root and iproute2
	@PYTHONPATH=tests $(BIN)/python -m support.hosts

kills-%: $(READY)
	PYTHONPATH=tests $(BIN)/python -m support.killing --kills 5000 --seed $*

clients: $(READY)  ## predictions asked for by MLflow's and Triton's own clients; installs both
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt mlflow-skinny 'tritonclient[http]'
	$(BIN)/python -m pytest -q -rs tests/server/test_clients.py

load: $(READY) .venv-mlflow/.ready  ## 200 predictions per second over HTTP while people are erased, for half an hour, after 10,000 past requests: none stale, none lost; beside MLflow
	$(BIN)/python -m benchmarks.load --seconds 1800 --history 10000 --mlflow .venv-mlflow/bin/python $(LOAD)

.venv-mlflow/.ready:
	@echo "setting up .venv-mlflow, for MLflow's own server: a minute or two"
	@$(PYTHON) -m venv .venv-mlflow
	@.venv-mlflow/bin/python $(INSTALL) mlflow scikit-learn
	@touch $@

bench: $(READY)  ## speed and memory, as ratios, into docs/benchmarks.md; takes a quarter of an hour or more
	@$(BIN)/python -m benchmarks

history: $(READY)  ## what a request, a status or a receipt costs after 10, 1,000 and 100,000 requests; half an hour or more
	@$(BIN)/python -m benchmarks.history --verify $(HISTORY)

callers: $(READY)  ## erasures per second by eight callers beside one, where each sync takes 4 ms longer; fails below 5 times
	@$(BIN)/python -m benchmarks.callers

long-calls: $(READY)  ## one-row predictions beside calls with 700,000 rows or 100,000 ids; fails above 10 times
	@$(BIN)/python -m benchmarks.long_calls

scale: $(READY)  ## vaults of 10^7 rows, with and without workers, into docs/scale.md; SCALE=--large: 10^8 rows, an hour and 60 GB
	@$(BIN)/python -m benchmarks.scale $(SCALE)

quality: $(READY)  ## errors on real tables beside boosted trees (installs LightGBM and CatBoost), into docs/quality.md; an hour or more
	-@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt lightgbm catboost
	@$(BIN)/python -m benchmarks.quality $(QUALITY)

choosing: $(READY)  ## the figures and numbers of docs/choosing.md; a few minutes
	@$(BIN)/python -m benchmarks.choosing

classes: $(READY)  ## classifiers beside trees and logistic regression, and time to forget, into docs/classification.md
	@$(BIN)/python -m benchmarks.classes

paper: $(READY)  ## the paper's experiments, claims and report, in paper-results; up to an hour
	$(BIN)/expunge paper run
	$(BIN)/expunge paper check
	$(BIN)/expunge paper report

docs: $(READY)  ## the API from the docstrings, as HTML in build/docs
	$(BIN)/pdoc --docformat numpy --output-directory build/docs expunge expunge.testing expunge.errors expunge.vault expunge.distributed

clean:
	rm -rf $(VENV) $(LOWEST) .venv-mlflow build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the package is built with, in versions that are pinned as well: pip would take the newest for a build of its own.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
BUILD := setuptools Cython scipy
SOURCES := $(wildcard src/expunge/exact/*.pyx src/expunge/exact/*.c src/expunge/exact/*.h)

$(READY): pyproject.toml constraints.txt $(filter-out %/_native.c,$(SOURCES))
	@echo "setting up $(VENV): about a minute"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(INSTALL) --constraint constraints.txt $(BUILD)
	@$(BIN)/python $(INSTALL) --constraint constraints.txt --no-build-isolation --editable '.[test,docs]'
	@touch $(READY)

$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt
	@echo "setting up $(LOWEST): about a minute"
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python $(INSTALL) --constraint constraints-lowest.txt $(BUILD)
	@$(LOWEST)/bin/python $(INSTALL) --constraint constraints-lowest.txt --no-build-isolation --editable '.[test,docs]'
	@touch $@
