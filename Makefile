# `make demo` shows what Lockstitch does; `make test` is everything a change has to pass.
# Both need only make and Python 3.11 or newer, and build .venv themselves the first time.

PYTHON ?= python3
BIN := .venv/bin
# Each worker gets a stretch of neighbouring tests, and half of another's when it is done: what the
# tests of a file share is then built by one worker, not by all. Programs that tests start take
# longest to compile what they import, so that is kept, whatever the machine is set to.
PYTEST := PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test clients sessions precision docs bench

demo: .venv/.installed-demo
	$(BIN)/python examples/run.py

test: .venv/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(PYTEST)
	$(BIN)/python scripts/generate_docs.py --check

# The real Claude Code and Codex, in every version known here, on every kind of broken session.
clients: .venv/.installed-dev
	LOCKSTITCH_CLIENTS=all $(PYTEST) tests/clients

# Sessions of the real Claude Code, made by typing into it; they stay out of version control.
sessions: .venv/.installed-dev
	$(BIN)/python -m tests.clients.sessions $(ARGS)

# How right the findings are on real sessions: make precision FOLDER=~/.claude/projects
FOLDER ?= .cache/sessions
precision: .venv/.installed-dev
	$(BIN)/python -m tests.precision $(FOLDER) $(ARGS)

docs: .venv/.installed-dev
	$(BIN)/python scripts/generate_docs.py

bench: .venv/.installed-dev
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/sessions.py --keep
	$(BIN)/python benchmarks/stores.py --keep
	$(BIN)/python benchmarks/checkpoints.py --keep

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Lockstitch needs Python 3.11 or newer: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/.installed-demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[provider]'
	touch $@ .venv/.installed

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[async,dev,interop,langgraph,postgres,provider]'
	touch $@ .venv/.installed .venv/.installed-demo
