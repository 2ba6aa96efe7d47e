# `make leaderboard` and `make test` need Python 3.11+, make and a package index, nothing else.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# On Linux the index's own torch brings gigabytes of CUDA; its CPU build goes in first, alone, so that nothing asks
# for the other. It is looked for where pip looks anyway, then on PyTorch's own index.
TORCH := $(shell sed -n 's/^\(torch==[^ ]*+cpu\) .*/\1/p' constraints.txt)
TORCH_INDEX := https://download.pytorch.org/whl/cpu

.PHONY: leaderboard board test lint clean

leaderboard: .venv/.players
	@if $(BIN)/fintrading models add smollm2; then also="--also llm:local/smollm2"; \
	  else echo "Without its weights (see above) the small language model does not play."; fi; \
	$(BIN)/fintrading leaderboard $$also

# The board whose table is in the README: more than an hour on two cores, and called again it goes on.
board: .venv/.players
	$(BIN)/fintrading models add smollm2
	$(BIN)/python benchmarks/reference_board.py --readme

test: lint
	@$(BIN)/fintrading models add smollm2 || echo "Without its weights (see above) the tests of the small model are skipped."
	$(BIN)/pytest
	$(BIN)/pytest --dist loadfile -m 'slow and not timed'
	$(BIN)/pytest -n 0 -m timed $$(grep -l 'mark\.timed' tests/test_*.py)

lint: .venv/.checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What plays: the game, the learners, the language models.
.venv/.players: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing into .venv; this takes a minute or two."
	$(PYTHON) -m venv .venv
ifeq ($(shell uname -sm),Linux x86_64)
	$(PIP) --no-deps $(TORCH) 2> /dev/null || $(PIP) --no-deps --index-url $(TORCH_INDEX) $(TORCH)
endif
	$(PIP) -c constraints.txt -e '.[llm,local,rl,stats]'
	@touch $@

# What checks it, beside that.
.venv/.checks: .venv/.players
	$(PIP) -c constraints.txt -e '.[dev,fast,llm,local,ray,rl,stats]'
	@touch $@

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
