# Two commands need nothing but Python 3.11+ and make: `make demo` and `make test`.
# Each makes its own virtual environment in .venv and installs all it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: help demo test lint teeth terraform soak gauntlet bench clean

help:
	@echo "make demo    an agent is killed in mid-run, many times, and resumed (ARGS='s3://... --kills 20')"
	@echo "make test    linters, types, and all tests, on every server that can be started here"
	@echo "make lint    linters and types only"
	@echo "make teeth   wrong variants of the product, each caught by a test"
	@echo "make terraform  the modules of terraform/: their form, plans and policies, and AWS's applied to a server here"
	@echo "make soak    the random parts of the tests, for long (ARGS='histories --seconds 3600 --seed 7')"
	@echo "make gauntlet  agents killed at random and at every storage call, over a thousand times (ARGS='plain --kills 50')"
	@echo "make bench   ratios of time, requests and bytes (ARGS='wire file')"
	@echo "make clean   remove the virtual environments and caches"

# uv resolves and installs in seconds what takes pip minutes: s3fs pins a botocore, moto wants boto3.
$(VENV)/.uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1'
	@touch $@

$(VENV)/.cli: $(VENV)/.uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[cli,s3]'
	@touch $@

$(VENV)/.dev: $(VENV)/.uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]'
	@touch $@

demo: $(VENV)/.cli
	$(BIN)/cloudckpt demo $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m tests.together $(ARGS)

# Each wrong variant of the protocol, the engines and the retention, by the test that catches it.
teeth: $(VENV)/.dev
	$(BIN)/python -m pytest -v tests/broken tests/conformance/test_teeth.py $(ARGS)

# Needs terraform or tofu, and a folder with the AWS provider: CLOUDCKPT_TF_PLUGIN_DIR, or a usual place.
terraform: $(VENV)/.dev
	$(BIN)/python -m pytest -v tests/terraform $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/python -m tests.soak $(ARGS)

gauntlet: $(VENV)/.dev
	$(BIN)/python -m tests.e2e.agents $(ARGS)

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[bench,dev]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m tests.benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
