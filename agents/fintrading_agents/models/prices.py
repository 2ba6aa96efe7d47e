"""What a call costs, where that is known: a user's table first, then `genai-prices`."""

import datetime
import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fintrading_agents.models.reply import Usage


@dataclass(frozen=True)
class Price:
    """USD of a call, and who says so."""

    usd: Callable[[Usage], float]
    source: Callable[[], str | None] = lambda: None
    """Whose price it is on the day of asking, and of which date; None: nobody's, for what runs here is free."""

    def __call__(self, usage: Usage) -> float:
        """What the call costs."""
        return self.usd(usage)


free = Price(lambda usage: 0.0)  # what runs here


def find_price(name: str, base_url: str, file: str | None) -> Price | None:
    """The price of `provider/model` at an endpoint; None where nobody knows it, which is not free.

    Args:
        name: as the user names the model.
        base_url: whose prices count: the same model may cost something else elsewhere.
        file: a TOML table in USD per million tokens, `cached` as `input` if left out, `date` the day on which the
            prices were looked up, else that of the file: `["openai/gpt-4o-mini"]`, `input = 0.15`, `output = 0.6`,
            `cached = 0.075`, `date = 2026-11-30`.

    Raises:
        ValueError: the file cannot be read as such a table.
    """
    own = _own(Path(file)).get(name) if file else None
    return own or _published(name.partition("/")[2], base_url)


def _own(file: Path) -> dict[str, Price]:
    try:
        written = file.read_bytes()
        table = tomllib.loads(written.decode())
        changed = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise ValueError(f"{file}: cannot be read as a table of prices: {fault}") from None
    told = f"{file.name} (sha256 {hashlib.sha256(written).hexdigest()[:12]})"
    return {name: _row(name, row, file, told, changed) for name, row in table.items()}


def _row(name: str, row: Any, file: Path, told: str, changed: datetime.date) -> Price:
    numbers = dict(row) if isinstance(row, dict) else {}
    day = numbers.pop("date", changed)
    good = all(isinstance(number, int | float) and 0 <= number < float("inf") for number in numbers.values())
    if (
        not good
        or type(day) is not datetime.date
        or not {"input", "output"} <= numbers.keys() <= {"input", "output", "cached"}
    ):
        raise ValueError(
            f"{file}: {name!r} needs input and output, and may have cached: USD per million tokens, >= 0; and a date"
        )
    read, written = float(numbers["input"]), float(numbers["output"])
    again = float(numbers.get("cached", read))

    def cost(usage: Usage) -> float:
        return (read * (usage.input - usage.cached) + again * usage.cached + written * usage.output) / 1e6

    return Price(cost, lambda: f"{told} of {day}")


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
    # What holds on the day of the call: a list can have several prices of a model, one after the other.
    return Price(
        cost, lambda: f"genai-prices {genai_prices.__version__}, as of {datetime.datetime.now(datetime.UTC).date()}"
    )
