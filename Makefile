# `make demo` shows what Lockstitch does; `make test` is everything a change has to pass.
# Both need only make and Python 3.11 or newer, and build .venv themselves the first time.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
comma := ,
EXTRAS := async,dev,interop,langgraph,postgres,provider,zstd
# Registries fail now and then: where nobody is there to try again, it is done here.
RETRIED := $(if $(CI),scripts/retried)
# Each worker gets a stretch of neighbouring tests, and half of another's when it is done: what the
# tests of a file share is then built by one worker, not by all. Programs that tests start take
# longest to compile what they import, so that is kept, whatever the machine is set to.
PYTEST := PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-newest lock fuzz clients server sessions precision docs bench langgraph-suite

demo: $(VENV)/.installed-demo
	$(BIN)/python examples/run.py

# With what requirements/dev.lock names. Programs that tests need besides Python are installed
# first where that is allowed; where it is not, the tests that need them are left out and counted.
test: $(VENV)/.installed-dev
	$(BIN)/python -m tests.tools
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(PYTEST)
	$(BIN)/python scripts/generate_docs.py --check

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
	$(MAKE) VENV=.venv-suite .venv-suite/.installed-dev
	.venv-suite/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[suite]'
	.venv-suite/bin/python -m tests.integrations.langgraph.suite $(CHECKOUT) $(ARGS)

# Names the newest releases in requirements/*.lock, for every Python and platform at once.
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
		$(foreach extra,$(subst $(comma), ,$(EXTRAS)),--extra $(extra)) \
		--output-file requirements/dev.lock pyproject.toml
	.venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
		--constraint requirements/dev.lock \
		--output-file requirements/server.lock requirements/server.in
	rm -rf .venv-lock

# Properties on many examples, others each time, and everything that steps over some of its cases.
EXAMPLES ?= 5000
fuzz: $(VENV)/.installed-dev
	LOCKSTITCH_FUZZ_EXAMPLES=$(EXAMPLES) $(PYTEST) $(or $(TESTS),tests/property)

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

docs: $(VENV)/.installed-dev
	$(BIN)/python scripts/generate_docs.py

bench: $(VENV)/.installed-dev
	$(PIP) --editable '.[bench]'
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/sessions.py --keep
	$(BIN)/python benchmarks/stores.py --keep
	$(BIN)/python benchmarks/checkpoints.py --keep
	$(BIN)/python benchmarks/doubling.py --keep

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

# The project itself is built by what was just installed: nothing is fetched that is not locked.
$(VENV)/.installed-dev: pyproject.toml requirements/dev.lock | $(VENV)/bin/python
	$(RETRIED) $(PIP) --require-hashes --requirement requirements/dev.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@ $(VENV)/.installed $(VENV)/.installed-demo
