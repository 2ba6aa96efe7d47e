"""What a call costs, where that is known: a user's table first, then `genai-prices`."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fintrading_agents.models.reply import Usage

Price = Callable[[Usage], float]  # USD of a call


def free(usage: Usage) -> float:
    """The price of what runs here."""
    return 0.0


def find_price(name: str, base_url: str, file: str | None) -> Price | None:
    """The price of `provider/model` at an endpoint; None where nobody knows it, which is not free.

    Args:
        name: as the user names the model.
        base_url: whose prices count: the same model may cost something else elsewhere.
        file: a TOML table in USD per million tokens, `cached` as `input` if left out:
            `["openai/gpt-4o-mini"]`, `input = 0.15`, `output = 0.6`, `cached = 0.075`.

    Raises:
        ValueError: the file cannot be read as such a table.
    """
    own = _own(Path(file)).get(name) if file else None
    return own or _published(name.partition("/")[2], base_url)


def _own(file: Path) -> dict[str, Price]:
    try:
        table = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise ValueError(f"{file}: cannot be read as a table of prices: {fault}") from None
    return {name: _row(name, row, file) for name, row in table.items()}


def _row(name: str, row: Any, file: Path) -> Price:
    numbers = row if isinstance(row, dict) else {}
    good = all(isinstance(number, int | float) and 0 <= number < float("inf") for number in numbers.values())
    if not good or not {"input", "output"} <= numbers.keys() <= {"input", "output", "cached"}:
        raise ValueError(f"{file}: {name!r} needs input and output, and may have cached: USD per million tokens, >= 0")
    read, written = float(numbers["input"]), float(numbers["output"])
    again = float(numbers.get("cached", read))

    def cost(usage: Usage) -> float:
        return (read * (usage.input - usage.cached) + again * usage.cached + written * usage.output) / 1e6

    return cost


def _published(model: str, base_url: str) -> Price | None:
    try:
        import genai_prices
    except ModuleNotFoundError:
        return None

    def cost(usage: Usage) -> float:
        counts = genai_prices.Usage(
            input_tokens=usage.input, cache_read_tokens=usage.cached, output_tokens=usage.output
        )
        return float(genai_prices.calc_price(counts, model, provider_api_url=base_url).total_price)

    try:
        cost(Usage(1, 1))
    except LookupError:
        return None
    return cost
