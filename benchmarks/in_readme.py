"""Where the README shows what a benchmark found: between two comments that name it."""

from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def show(name: str, found: str) -> None:
    """Put what was found in the place of that name.

    Raises:
        ValueError: the README has no such place.
    """
    text = README.read_text()
    begin, end = (text.index(f"<!-- {name}: {mark} -->") for mark in ("begin", "end"))
    README.write_text(text[: text.index("\n", begin) + 1] + found + text[end:])
