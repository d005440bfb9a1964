# Needs make and Python >= 3.11. Where Go is, the tests run against a real kube-apiserver too.

PYTHON ?= python3
CONTAINER ?= docker
# Tests wait a lot: three workers keep two cores busy. A file's tests stay with one, for its fixtures.
WORKERS ?= 3
SPREAD = -n $(WORKERS) --dist loadfile --max-worker-restart=0
VENV := .venv
BIN := $(VENV)/bin
PYTEST ?= $(BIN)/pytest
READY := $(VENV)/.ready
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-strip-extras --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCKFLAGS)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format type unit integration nightly apiserver bench lock image clean

help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## tour the proxy in front of an in-memory API server
	@$(BIN)/kubecache demo

# The servers are built before pytest, so that minutes of compiling are seen. Where they cannot
# be built, pytest skips their tests, or fails when CI=true.
test: lint type ## everything: lint, types, unit and integration tests
	@$(PYTHON) tests/apiserver/build.py || true
	@$(PYTHON) tests/clients/build.py || true
	@$(PYTHON) tests/helm/tool.py version --short || true
	@$(PYTEST) $(SPREAD)

lint: $(READY) ## ruff and the import order
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## let ruff fix and format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

type: $(READY) ## mypy --strict
	@$(BIN)/mypy

unit: $(READY) ## unit tests alone: a minute
	@$(BIN)/pytest $(SPREAD) tests/unit

integration: $(READY) apiserver ## tests against a real kube-apiserver
	@$(BIN)/pytest $(SPREAD) tests/integration

nightly: $(READY) apiserver ## 100,000 random operations, and everything behind two proxies: over an hour
	@KUBECACHE_TEST_OPERATIONS=100000 $(BIN)/pytest --timeout=3600 tests/integration/test_list_oracle.py
	@KUBECACHE_TEST_OPERATIONS=20000 $(BIN)/pytest --timeout=3600 tests/integration/test_history_oracle.py
	@KUBECACHE_TEST_CHAIN=1 $(BIN)/pytest tests/integration

apiserver: ## build kube-apiserver, etcd, kubectl, helm and Go clients for the tests: minutes, once
	@$(PYTHON) tests/apiserver/build.py
	@$(PYTHON) tests/clients/build.py
	@$(PYTHON) tests/helm/tool.py version --short

bench: $(READY) ## benchmarks; ARGS goes to `python -m bench`
	@$(BIN)/python -m bench $(ARGS)

lock: $(READY) ## compile requirements/; LOCKFLAGS=--upgrade takes newer versions
	@$(BIN)/pip install --quiet --require-hashes -r requirements/uv.txt
	$(COMPILE) pyproject.toml -o requirements/run.txt
	$(COMPILE) pyproject.toml --group dev -c requirements/run.txt -o requirements/dev.txt
	echo hatchling | $(COMPILE) - -c requirements/dev.txt -o requirements/build.txt
	echo uv | $(COMPILE) - -o requirements/uv.txt

image: ## build the container image; CONTAINER=podman works too
	$(CONTAINER) build --tag kubecache:$(VERSION) .

clean: ## remove what make made in this tree
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("kubecache needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
