# `make leaderboard` and `make test` need Python 3.11+ and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: leaderboard test lint clean

leaderboard: $(READY)
	@if $(BIN)/fintrading models add smollm2; then also="--also llm:local/smollm2"; \
	  else echo "Without its weights (see above) the small language model does not play."; fi; \
	$(BIN)/fintrading leaderboard $$also

test: lint
	$(BIN)/pytest
	$(BIN)/pytest -n 0 -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,llm,local]'
	@touch $(READY)

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
