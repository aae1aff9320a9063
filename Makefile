# One command per need; `make help` lists them. PYTHON= chooses the interpreter that makes .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
PYTEST := $(BIN)/python -m pytest

# `makemigrations` warns when it finds no database to compare with; a check of the code needs none.
MANAGE := $(BIN)/python -W ignore::RuntimeWarning manage.py
OPENAPI := docs/reference/openapi.yaml

.PHONY: help setup run test check bench format openapi lock assets messages screenshots

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything in it; at once when it is up to date

# uv, which installs the rest in seconds, comes first and by its own locked hash. Nothing outside .venv is changed.
$(STAMP): requirements-dev.txt pyproject.toml client/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(not (3, 11) <= v < (3, 14) and "Rota needs Python 3.11 to 3.13, and $(PYTHON) is %d.%d. Choose another one: make setup PYTHON=python3.12" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@awk '/^[^ #]/ { uv = /^uv==/ } uv' requirements-dev.txt > .venv/uv.txt
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e client -e .
	@touch $@
	@echo "Ready: $(BIN)/rota ($$($(BIN)/python --version))"

run: setup ## set up and run everything; prints the address (PORT= chooses the port)
	@$(BIN)/rota up $(if $(PORT),--port $(PORT))

test: setup ## every test, the fast ones first (ROTA_REQUIRE_ALL=1: a missing service fails)
	$(PYTEST) -m "not slow" --numprocesses auto --maxprocesses 8
	$(PYTEST) -m slow

check: setup ## style, types, import contracts, migrations and the published API
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .venv/.cache/import-linter
	$(MANAGE) makemigrations --check --dry-run
	$(MANAGE) spectacular --validate --fail-on-warn --file .venv/.cache/openapi.yaml
	@diff --unified $(OPENAPI) .venv/.cache/openapi.yaml || { echo "The API has changed: run make openapi"; exit 1; }

bench: setup ## measure; a gate that fails is exit status 1
	$(BIN)/rota bench all

format: setup ## put the code into the one style, fix what a tool can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

openapi: setup ## write the API's description after a change that is meant
	$(MANAGE) spectacular --validate --fail-on-warn --file $(OPENAPI)

messages: setup ## bring the translations up to date; what waits for a translation is listed
	$(BIN)/python -m frontend.messages

assets: ## rebuild frontend/static/vendor from npm's packages; the only command that needs Node
	cd frontend && npm ci --no-audit --no-fund --ignore-scripts=false && npm run build

screenshots: setup ## make the pictures of docs/screenshots, of a server with a lively hour in it
	ROTA_SCREENSHOTS=docs/screenshots $(PYTEST) -q tests/browser/test_screenshots.py

lock: setup ## lock what requirements*.in name, with hashes and without an index (UPGRADE=1: the newest versions)
	$(COMPILE) --output-file requirements.txt requirements.in
	$(COMPILE) --constraints requirements.txt --output-file requirements-dev.txt requirements-dev.in

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
