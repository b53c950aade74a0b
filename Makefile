PYTHON ?= python3
BIN := .venv/bin
# Compiled modules are kept, whatever the shell says: the tests start many processes that import them.
# Each of WORKERS collects all tests. Slow ones wait for clusters meanwhile, so three keep two cores busy.
WORKERS := 3
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: install demo lint check test soak nightly coverage clean

install: .venv/installed

.venv/installed: pyproject.toml
	@echo 'installing into .venv: about 7 GB, a few minutes'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --quiet --editable '.[test]'
	touch $@

demo: install
	$(BIN)/sweeper run anomaly_grid --preset digits

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# All that is not slow.
check: WORKERS := 2
check: lint
	$(PYTEST) -m 'not slow'

# All but whole clusters and failures whose laws quicker tests assert as well.
test: lint
	$(PYTEST) -m 'not soak'

# Those, and simulated worlds of fixed seeds: a change is never refused for a world that another one made. Take other worlds
# by hand from time to time; `make nightly` searches new ones.
soak: FIRST_WORLD := 49000000
soak: install
	$(PYTEST) -m soak
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.simulation --worlds 500 --first-seed $(FIRST_WORLD)

# Every crash of small sweeps, an hour of worlds that nobody has seen, and deliberate faults that worlds must find.
nightly: SIMULATION := OMP_NUM_THREADS=1 $(BIN)/python -m tests.simulation
nightly: install
	$(SIMULATION).crashes
	$(SIMULATION) --hours 1
	$(SIMULATION).mutants

# All tests, and the lines that none of them runs in any process.
coverage: install
	$(BIN)/coverage erase
	$(subst -m pytest,-m coverage run -m pytest,$(PYTEST))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

clean:
	rm -rf .venv *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .coverage*
