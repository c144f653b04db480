# Every target makes its own .venv and installs all it needs; nothing else has to be there but Python 3.11 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test check format bench clean

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_core.py

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Long: prints the tables of docs/policies.md with date and machine. See benchmarks/README.md.
bench: $(VENV)/installed
	$(BIN)/python -m benchmarks.decide
	$(BIN)/python -m benchmarks.simulator
	$(BIN)/python -m benchmarks.policies

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
