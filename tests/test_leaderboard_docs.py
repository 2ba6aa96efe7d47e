"""docs/leaderboard.md: its commands run in turn, its queries give what they say, its schema is the file's."""

import os
import re
import shlex
import sqlite3
from pathlib import Path

import pytest
from conftest import KEY
from stub_endpoint import Stub, says

from fintrading_gym.schema import SCHEMA
from fintrading_gym.store import digest, rows

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/leaderboard.md").read_text().partition("## How to read the statistics")[0]
BASH = [line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.S | re.M) for line in block.splitlines()]
SQL = re.findall(r"^```sql\n(.*?)^```", PAGE, re.S | re.M)
SHORT = ("--timesteps", "3", "--cells", "tsla_main")  # added to boards here


def answer(body):
    return says('{"action": "buy"}' if len(body["messages"][-1]["content"]) % 2 else '{"action": "sell"}')


def test_the_commands_take_a_model_from_its_address_to_a_board_that_is_verified(run, monkeypatch):
    pytest.importorskip("openai")
    Path("prices.toml").write_text(re.search(r"^```toml\n(.*?)^```", PAGE, re.S | re.M)[1])
    Path("outputs/smoke").mkdir(parents=True)
    Path("outputs/smoke/traces.jsonl").write_bytes((ROOT / "tests/traces.jsonl").read_bytes())
    said, digests = [], {}
    with Stub(answer) as stub:
        for line in BASH:
            program, *words = shlex.split(line)
            if program == "export":
                name, _, value = words[0].partition("=")
                assert value in ("http://127.0.0.1:8000/v1", "...")
                monkeypatch.setenv(name, stub.url if name == "OPENAI_BASE_URL" else KEY)
                continue
            if program == "pip":
                continue
            if "theirs.sqlite" in words:
                monkeypatch.delenv("OPENAI_API_KEY")
                (Path(os.environ["FINTRADING_CACHE"]) / "replies.sqlite").rename("theirs.sqlite")
            before = len(stub.requests)
            assert program == "fintrading"
            said.append((words, run(*words, *(SHORT if words[0] == "leaderboard" else ())).out))
            asked = len(stub.requests) - before
            paid = words[0] in ("play", "leaderboard") and not {"--dry-run", "replay"} & set(words)
            assert bool(asked) == paid, line
            if "--out" in words and "--dry-run" not in words:
                digests[words[words.index("--out") + 1]] = said[-1][1].split()[-1]
    assert [words[0] for words, _ in said] == [
        "play", "leaderboard", "leaderboard", "report", "export", "import", "rescore", "egress", "leaderboard",
    ]  # fmt: skip
    assert digests["again.db"] == digests["board.db"]
    assert digest(Path("board.db")) != digests["board.db"]  # of before the import
    told = re.search(r"llm:openai/my-model \[base_url=\S+\] +(\d+) +min +(\d+)", said[1][1])
    assert told.groups() == ("3", "9")
    assert "verifiers:openai/gpt-4o-mini" in {row["agent"] for row in rows(Path("board.db"))}
    _queries_are_answered()


def _queries_are_answered():
    connection = sqlite3.connect("board.db")
    agents = {row["agent"] for row in rows(Path("board.db"))}
    means, worst, used = (connection.execute(query) for query in SQL[1:4])
    assert [column[0] for column in means.description] == ["agent", "episodes", "score"]
    means = means.fetchall()
    assert {agent for agent, *_ in means} == agents
    assert [score for *_, score in means] == sorted((score for *_, score in means), reverse=True)
    worst = worst.fetchall()
    assert len(worst) == 5
    assert all("action" in said for *_, said in worst)
    used = {agent: (calls, tokens, usd) for agent, calls, tokens, _, usd, _ in used.fetchall()}
    (asking,) = [agent for agent in used if agent.startswith("llm:")]
    assert used[asking] == (9, 9 * 120, pytest.approx(9 * (120 * 0.15 + 8 * 0.6) / 1e6, abs=1e-4))
    with connection:
        assert connection.execute(SQL[4]).rowcount == 1
    assert {row["agent"] for row in rows(Path("board.db"))} == agents - {"verifiers:openai/gpt-4o-mini"}


def test_the_schema_of_the_page_is_that_of_the_files():
    assert SQL[0] == SCHEMA.lstrip("\n")
