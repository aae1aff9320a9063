# One command per need; `make help` lists them. PYTHON= chooses the interpreter that makes .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

.PHONY: help setup

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
