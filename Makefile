# `make demo` shows what Lockstitch does; `make test` is everything a change has to pass.
# Both need only make and Python 3.11 or newer, and build .venv themselves the first time.

PYTHON ?= python3
VENV ?= .venv
LOCK ?= requirements/dev.lock
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
comma := ,
EXTRAS := async,dev,interop,langgraph,postgres,provider,proxy,ui,watch,zstd
# Registries fail now and then: where nobody is there to try again, it is done here.
RETRIED := $(if $(CI),scripts/retried)
# Each worker gets a stretch of neighbouring tests, and half of another's when it is done: what the
# tests of a file share is then built by one worker, not by all. Programs that tests start take
# longest to compile what they import, so that is kept, whatever the machine is set to. Many tests
# wait, for a disk or a process, so there are half as many workers again as there are processors.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) * 3 // 2)')
ALONE := PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE= $(BIN)/python
PYTEST := $(ALONE) -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo test test-newest lock fuzz clients server sessions precision docs site bench langgraph-suite

demo: $(VENV)/.installed-demo
	$(BIN)/python examples/run.py

# With what requirements/dev.lock names. Programs that tests need besides Python are installed
# first where that is allowed; where it is not, the tests that need them are left out and counted.
test: $(VENV)/.installed-dev
	$(BIN)/python -m tests.tools
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(PYTEST) || { test $$? -eq 1 && $(ALONE) -m tests.again; }
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/python scripts/house.py --check

# The tests with the newest releases of everything, in an environment of its own.
test-newest:
	$(MAKE) VENV=.venv-newest .venv-newest/bin/python
	$(RETRIED) .venv-newest/bin/python -m pip install --quiet --disable-pip-version-check \
		--upgrade --upgrade-strategy eager --editable '.[$(EXTRAS)]'
	touch .venv-newest/.installed-dev
	$(MAKE) VENV=.venv-newest test

# LangGraph's own tests with our checkpointers in place of its own, compared with its own:
# make langgraph-suite CHECKOUT=../langgraph (a checkout of its repository, of about the version
# that is installed). Its tests need plugins of pytest that ours must not have.
langgraph-suite:
	$(MAKE) VENV=.venv-suite LOCK=requirements/suite.lock .venv-suite/.installed-dev
	.venv-suite/bin/python -m tests.integrations.langgraph.suite $(CHECKOUT) $(ARGS)

# Names the newest releases in requirements/*.lock, for every Python and platform at once.
LOCKED := .venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock'
ALL := $(foreach extra,$(subst $(comma), ,$(EXTRAS)),--extra $(extra))
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCKED) $(ALL) --output-file requirements/dev.lock pyproject.toml
	$(LOCKED) --constraint requirements/dev.lock \
		--output-file requirements/server.lock requirements/server.in
	$(LOCKED) $(ALL) --extra bench --output-file requirements/bench.lock pyproject.toml
	$(LOCKED) $(ALL) --extra suite --output-file requirements/suite.lock pyproject.toml
	rm -rf .venv-lock

# Properties on many examples, others each time, and everything that steps over some of its cases.
# With FORMAT, damaged sessions of a program instead: make fuzz FORMAT=codex MUTANTS=50000, or all.
EXAMPLES ?= 5000
MUTANTS ?= 5000
fuzz: $(VENV)/.installed-dev
ifdef FORMAT
	$(BIN)/python -m tests.fuzz --format $(FORMAT) --mutants $(MUTANTS) $(ARGS)
else
	LOCKSTITCH_FUZZ_EXAMPLES=$(EXAMPLES) $(PYTEST) $(or $(TESTS),tests/property)
endif

# The real Claude Code and Codex, in every version known here, on every kind of broken session.
clients: $(VENV)/.installed-dev
	LOCKSTITCH_CLIENTS=all $(PYTEST) tests/clients

# The real LangGraph Server with our checkpointer, killed and started again; it is fetched first.
server: $(VENV)/.installed-dev
	LOCKSTITCH_SERVER=1 $(PYTEST) -n 0 tests/server

# Sessions of the real Claude Code, made by typing into it; they stay out of version control.
sessions: $(VENV)/.installed-dev
	$(BIN)/python -m tests.clients.sessions $(ARGS)

# How right the findings are on real sessions: make precision FOLDER=~/.claude/projects
FOLDER ?= .cache/sessions
precision: $(VENV)/.installed-dev
	$(BIN)/python -m tests.precision $(FOLDER) $(ARGS)

# The pages that are made from the code, and what the commands of all pages print.
docs: $(VENV)/.installed-dev
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python -m tests.docs

# The documentation site, into site/.
site: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# Beside the programs that Lockstitch is compared with, which want other releases than it is
# developed with.
bench:
	$(MAKE) VENV=.venv-bench LOCK=requirements/bench.lock .venv-bench/.installed-dev
	.venv-bench/bin/python benchmarks/run.py
	.venv-bench/bin/python benchmarks/sessions.py --keep
	.venv-bench/bin/python benchmarks/stores.py --keep
	.venv-bench/bin/python benchmarks/checkpoints.py --keep
	.venv-bench/bin/python benchmarks/redaction.py --keep
	.venv-bench/bin/python benchmarks/doubling.py --keep
	.venv-bench/bin/python benchmarks/capacity.py --keep
	.venv-bench/bin/python benchmarks/proxy.py --keep

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Lockstitch needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[provider]'
	touch $@ $(VENV)/.installed

# A lock names everything, so pip need not look for what a package needs, and must not: it refuses
# an extra that is needed in two ways. The project itself is built by what was just installed:
# nothing is fetched that is not locked.
$(VENV)/.installed-dev: pyproject.toml $(LOCK) | $(VENV)/bin/python
	$(RETRIED) $(PIP) --no-deps --require-hashes --requirement $(LOCK)
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@ $(VENV)/.installed $(VENV)/.installed-demo
