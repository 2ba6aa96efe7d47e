"""The page itself: template, style, scripts and data in one file that asks nobody for anything."""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = ("data", "dom", "state", "columns", "ranking", "compare", "charts", "days", "day", "cost", "leakage", "main")
# Nothing is loaded, sent or framed; only this style and this script count; and a text that would be read as HTML by the
# script is refused by the browser itself (trusted types).
POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'"
)


def page(contents: Mapping[str, Any], texts: Iterable[Mapping[str, Any]]) -> bytes:
    """One HTML file; the same for the same arguments.

    Args:
        contents: of `contents.contents`.
        texts: of `texts.texts_of`.
    """
    style = (HERE / "page.css").read_text()
    script = "\n".join((HERE / "script" / f"{name}.js").read_text() for name in SCRIPTS)
    blocks = {"board": contents, **{f"texts-{k}": block for k, block in enumerate(texts)}}
    parts = {
        "title": html.escape(str(contents["title"])),
        "policy": POLICY.format(style=_hash(style), script=_hash(script)),
        "style": style,
        "script": script,
        "blocks": "\n".join(
            f'<script type="application/octet-stream" id="{name}">{packed(data)}</script>'
            for name, data in blocks.items()
        ),
    }
    template = (HERE / "page.html").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template).encode()


def packed(data: Any) -> str:
    """Data as JSON, deflated, in base64: no character of it means anything to HTML.

    Deflate in zlib's wrapping, which unlike gzip's holds neither a time nor an operating system.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
