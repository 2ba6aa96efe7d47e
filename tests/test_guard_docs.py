"""docs/guard.md says what the code does."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

from fintrading_agents.neutering.companies import table
from fintrading_agents.neutering.dates import SHAPES
from fintrading_gym.masking import IDENTITIES
from fintrading_gym.worlds import WORLDS

ROOT = Path(__file__).resolve().parent.parent
GUIDE = (ROOT / "docs/guard.md").read_text()


def test_the_table_of_what_masking_cannot_do_is_what_the_benchmark_prints(tmp_path):
    out = tmp_path / "identify.json"
    subprocess.run([sys.executable, ROOT / "benchmarks/identify.py", "--json", out], check=True, capture_output=True)
    shares = json.loads(out.read_text())
    part = GUIDE[GUIDE.index("<!-- identify: begin -->") : GUIDE.index("<!-- identify: end -->")]
    rows = re.findall(r"^\| (.*?) \| (.*?) % \|$", part, re.M)
    assert rows == [(name, f"{100 * share:.1f}") for name, share in shares.items()]
    assert shares == json.loads((ROOT / "benchmarks/results/identify.json").read_text())
    assert shares["7 closes, the first 100, to 0.1"] == 1  # what the README says


def test_what_is_said_of_the_small_model_is_what_its_audit_measured(monkeypatch):
    told = json.loads((ROOT / "benchmarks/results/local_audit.json").read_text())
    part = GUIDE[GUIDE.index("<!-- local audit: begin -->") : GUIDE.index("<!-- local audit: end -->")]
    assert f"```bash\n{told['command']}\n```" in part
    assert f"\n> {told['sentence']}\n" in part
    rates = [told["identification"][level]["ticker"] for level in ("names+dates", "masked")] + [
        told["recall"]["close_3pct"]
    ]
    said = re.findall(r"(\d+) of (\d+)", part)
    assert said == [(f"{rate['share'] * rate['n']:.0f}", str(rate["n"])) for rate in rates]
    same = {told["invariance"][level]["mirror"]["pc"]["mean"] for level in ("real", "masked")}
    assert same == {int(re.search(r"in (\d+) % of its samples", part)[1]) / 100}
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import local_audit

    assert local_audit.command() == told["command"]


def test_the_snippet_prints_what_its_comments_say():
    (code,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.S | re.M)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "guard.md", "exec"), {})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, re.M)
    for line, comment in zip(printed.getvalue().splitlines(), said, strict=True):
        assert line.startswith(comment.split("...")[0])


def test_levels_worlds_and_counts_are_all_told():
    for identity in IDENTITIES:
        assert f"| `{identity}` |" in GUIDE
    for world in WORLDS:
        assert world == "real" or f'"{world}"' in GUIDE
    assert f"in\n{len(SHAPES)} shapes" in GUIDE
    assert len(table().companies) > 100
