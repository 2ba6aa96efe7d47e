"""Where this package keeps what is dear to make or to fetch: trained policies, weights, models' replies."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$FINTRADING_CACHE`, else `fintrading-gym` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    if named := os.environ.get("FINTRADING_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fintrading-gym"
