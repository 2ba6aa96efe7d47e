"""`export`, `rescore`, `import` and `egress` of a board, `leaderboard --out`, `--again` and `--dry-run`."""

import hashlib
import json
import os
import sqlite3
from pathlib import Path

import pytest
from stub_endpoint import Stub, says
from test_cli_models import QUICK
from test_store import changed

from fintrading_gym.store import digest, rows

BOARD = ("leaderboard", "--cells", "tsla_main", "--seeds", 1, "--timesteps", 5, "--out", "board.db")
TRACES = (Path(__file__).parent / "traces.jsonl").resolve()


def last(text):
    """The line on the digest."""
    return next(line for line in text.splitlines() if line.startswith("sha256 of what board.db holds: "))[-64:]


def test_a_board_in_a_file_is_gone_on_with_and_says_what_it_holds(run):
    first = run(*BOARD, "--agents", "flat,momentum").out
    assert "board.db: 2 episodes, 2 of them played now" in first
    assert last(first) == digest(Path("board.db"))
    again = run(*BOARD, "--agents", "flat,momentum").out
    assert "board.db: 2 episodes, 0 of them played now" in again
    assert last(again) == last(first)
    more = run(*BOARD, "--agents", "oracle").out
    assert "board.db: 3 episodes, 1 of them played now" in more
    for agent in ("flat", "momentum"):
        assert f" {agent} " in more  # the whole board is shown
    assert "oracle is not ranked: knows the future" in run(*BOARD, "--agents", "flat").out  # played by an earlier run


@pytest.mark.parametrize("flag", ["--csv", "--json"])
def test_no_output_goes_over_the_board_or_what_is_read(flag, run):
    run(*BOARD, "--agents", "flat")
    before = digest(Path("board.db"))
    Path("link.db").symlink_to("board.db")
    Path("traces.jsonl").write_bytes(TRACES.read_bytes())
    over = "is read or written here already, and would be overwritten; give another file"
    for name in ("board.db", "link.db"):
        assert f"{name} {over}" in run(*BOARD, "--agents", "flat", flag, name, code=2).err
        assert f"{name} {over}" in run("import", "board.db", "traces.jsonl", flag, name, code=2).err
    assert f"traces.jsonl {over}" in run("import", "traces.jsonl", flag, "traces.jsonl", code=2).err
    assert (
        f"board.db {over}"
        in run("export", "board.db", "--csv" if flag == "--csv" else "--jsonl", "board.db", code=2).err
    )
    assert f"board.db {over}" in run("report", "board.db", "--out", "board.db", code=2).err
    Path("mine.csv").write_bytes((Path(__file__).parent.parent / "data/AAPL.csv").read_bytes())
    mine = ("leaderboard", "--agents", "flat", "--cells", "mine.csv:2022-10-06:2022-12-30", flag, "mine.csv")
    assert f"mine.csv {over}" in run(*mine, code=2).err
    once = ("analyse", "MINE", "--day", "2022-10-06", "--prices", "mine.csv", "--model", "scripted/committee")
    assert f"mine.csv {over}" in run(*once, "--json", "mine.csv", code=2).err
    assert f"rows.csv {over}" in run("export", "board.db", "--jsonl", "rows.csv", "--csv", "rows.csv", code=2).err
    assert digest(Path("board.db")) == before
    assert Path("traces.jsonl").read_bytes() == TRACES.read_bytes()


def test_again_plays_an_agent_once_more_and_no_other(run):
    run(*BOARD, "--agents", "flat,random")
    text = run(*BOARD, "--agents", "flat,random", "--again", "random").out
    assert "board.db: 2 episodes, 1 of them played now" in text
    out = run(*BOARD, "--agents", "flat,random", "--again", "randm", code=2)
    assert "No agent on this board 'randm'; there are ['flat', 'random']. Did you mean 'random'?" in out.err


def test_an_agent_whose_code_changed_is_played_anew_and_told(run):
    Path("mine.py").write_text("def agent(task):\n    return lambda observation: 2\n")
    run(*BOARD, "--agents", "mine:agent")
    Path("mine.py").write_text("def agent(task):\n    return lambda observation: 0\n")
    import sys

    del sys.modules["mine"]
    text = run(*BOARD, "--agents", "mine:agent").out
    del sys.modules["mine"]
    assert "1 episodes of other code, files, prices or versions under these names are set aside" in text
    assert [row["sell_share"] for row in rows(Path("board.db"))] == [1.0]


def test_only_what_was_asked_for_makes_the_command_fail(run):
    Path("bad.py").write_text("def agent(task):\n    return lambda observation: 1 / 0\n")
    out = run(*BOARD, "--agents", "flat,bad:agent", code=1)
    assert "some episodes failed; the table says which" in out.err
    run(*BOARD, "--agents", "flat")
    run(*BOARD, "--agents", "flat,bad:agent", code=1)  # it is tried again


def test_dry_run_tells_what_there_is_to_play_and_leaves_everything_as_it_is(run):
    words = (*BOARD, "--agents", "flat,llm:scripted/buy,llm:openai/gpt-4o-mini,llm:openai/nobody")
    text = run(*words, "--dry-run").out
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert lines["flat"][1:] == ["1", "no", "model"]
    assert lines["llm:scripted/buy"][1:] == ["1", "no", "model"]
    assert lines["llm:openai/nobody"][1:4] == ["1", "min", "5"]
    assert lines["max"][:2] == ["max", "15"]
    assert lines["llm:openai/nobody"][-2] == "?"
    assert not Path("board.db").exists()
    assert list(Path().rglob("*.sqlite")) == []
    run(*BOARD, "--agents", "flat")
    before = Path("board.db").read_bytes()
    assert "flat" not in run(*words, "--dry-run").out
    assert "There is nothing to be played" in run(*BOARD, "--agents", "flat", "--dry-run").out
    assert Path("board.db").read_bytes() == before


@pytest.mark.parametrize("words", [("--dry-run",), ()])
def test_an_address_with_a_secret_in_it_is_refused_and_written_nowhere(words, run, monkeypatch):
    for given in ("flag", "variable"):
        url = "http://user:hunter2@127.0.0.1:9/v1"
        if given == "variable":
            monkeypatch.setenv("OPENAI_BASE_URL", url)
        flag = ("--base-url", url) if given == "flag" else ()
        out = run(*BOARD, "--agents", "flat,llm:openai/x", *flag, *words, code=2)
        assert "base_url may hold no user, password or query" in out.err
        assert "hunter2" not in out.out + out.err
        assert not any(b"hunter2" in path.read_bytes() for path in Path().rglob("*") if path.is_file())


def test_export_writes_files_whose_digest_is_the_boards(run):
    run(*BOARD, "--agents", "flat,llm:scripted/prose")
    words = ("export", "board.db", "--csv", "rows.csv", "--jsonl", "board.jsonl", "--parquet", "rows.parquet")
    pytest.importorskip("pyarrow")
    text = run(*words).out
    assert hashlib.sha256(Path("board.jsonl").read_bytes()).hexdigest() == last(text)
    assert "rows.csv: 2 episodes; rows.steps.csv: 10 steps" in text
    assert "rows.parquet: 2 episodes; rows.steps.parquet: 10 steps" in text
    assert last(run("export", "board.db").out) == last(text)
    assert "No such file" in run("export", "board.db", "--csv", "nowhere/rows.csv", code=2).err
    assert "There is no board none.db" in run("export", "none.db", "--csv", "rows.csv", code=2).err


def test_rescore_passes_what_is_whole_and_fails_with_what_differs(run):
    run(*BOARD, "--agents", "flat,llm:scripted/prose")
    text = run("rescore", "board.db").out
    assert "2 episodes are what their ledgers, prices and replies make them" in text
    assert last(text) == digest(Path("board.db"))
    changed("board.db", "UPDATE steps SET log_return = 0.5 WHERE episode = 1 AND day = 2")
    out = run("rescore", "board.db", code=1)
    assert "flat, tsla_main: it is not what was written" in out.out
    assert "1 episodes are what their" in out.out
    assert out.err.strip() == "fintrading: 1 episodes of board.db differ"
    Path("text.db").write_text("no board")
    for command in ("rescore", "export", "egress"):
        assert len(run(command, "text.db", code=2).err.strip().splitlines()) == 1


def test_rescore_tells_what_was_forged_with_its_hash(run):
    """Whoever can write the file can write the hash of what he forged."""
    run(*BOARD, "--agents", "momentum")
    from fintrading_gym.stored import _line, _parts, sha256_of

    changed("board.db", 'UPDATE episodes SET score = 0.99, "row" = json_set("row", \'$.score\', 0.99)')
    connection = sqlite3.connect("board.db")
    with connection:
        connection.execute("UPDATE episodes SET sha256 = ?", (sha256_of(_line(*_parts(connection, 1))),))
    connection.close()
    assert len(rows(Path("board.db"))) == 1
    assert "momentum, tsla_main: score is 0.99, but its ledger gives 0." in run("rescore", "board.db", code=1).out


def test_a_run_of_vf_eval_stands_on_the_board_beside_the_others_and_once(run):
    run(*BOARD, "--agents", "buy_and_hold,llm:scripted/buy", "--identity", "real")
    text = run("import", "board.db", TRACES, "--csv", "rows.csv").out
    assert "board.db: 3 episodes, 1 of them new" in text
    assert "verifiers:openai/gpt-4o-mini was shown identity=real" in text
    assert all(f" {agent} " in text for agent in ("buy_and_hold", "llm:scripted/buy"))
    assert len(Path("rows.csv").read_text().splitlines()) == 4
    again = run("import", "board.db", TRACES).out
    assert "board.db: 3 episodes, 0 of them new" in again
    assert last(again) == last(text)
    assert "3 episodes are what their" in run("rescore", "board.db").out
    calls = "SELECT messages, reply, verdict FROM calls JOIN episodes ON id = episode WHERE agent LIKE ? ORDER BY day"
    told = {}
    for agent in ("llm%", "verifiers%"):
        found = sqlite3.connect("board.db").execute(calls, (agent,)).fetchall()[:3]
        told[agent] = [
            (json.loads(messages), json.loads(reply)["content"], json.loads(verdict))
            for messages, reply, verdict in found
        ]
    of_3 = json.dumps(told["verifiers%"]).replace("decisions taken: 0 of 3", "decisions taken: 0 of 5")
    assert len(told["llm%"]) == 3
    assert json.loads(of_3)[0] == json.loads(json.dumps(told["llm%"]))[0]


def test_import_refuses_what_is_no_board_or_no_traces_and_makes_nothing(run):
    Path("copy.jsonl").write_bytes(TRACES.read_bytes())
    assert "copy.jsonl is no board" in run("import", "copy.jsonl", TRACES, code=2).err
    assert Path("copy.jsonl").read_bytes() == TRACES.read_bytes()
    assert "and not 3 files" in run("import", "board.db", TRACES, TRACES, code=2).err
    Path("empty.jsonl").write_text("{}\n")
    run("import", "board.db", "empty.jsonl", code=2)
    assert not Path("board.db").exists()


def test_egress_looks_into_every_masked_episode_of_a_board(run):
    run(*BOARD, "--agents", "flat,llm:scripted/momentum")
    assert "board.db: nothing tells who or when" in run("egress", "board.db").out
    run("import", "board.db", TRACES)
    assert "board.db: nothing tells who or when" in run("egress", "board.db").out  # that was shown who it is
    connection = sqlite3.connect("board.db")
    from fintrading_gym.stored import _line, _parts, sha256_of

    number = connection.execute("SELECT id FROM episodes WHERE agent LIKE 'llm:%'").fetchone()[0]
    with connection:
        told = "UPDATE calls SET reply = json_set(reply, '$.reasoning', 'Tesla, surely.') WHERE episode = ? AND day = 2"
        connection.execute(told, (number,))
        sha256 = sha256_of(_line(*_parts(connection, number)))
        connection.execute("UPDATE episodes SET sha256 = ? WHERE id = ?", (sha256, number))
    connection.close()
    out = run("egress", "board.db", code=1)
    assert "board.db: llm:scripted/momentum, tsla_main, adaptive, day 2, calls 1, reasoning: company 'Tesla'" in out.out
    assert "1 leaks: this run is not to be published as a masked one" in out.err


# ------------------------------------------------------------------------------------------ at an endpoint


def answer(body):
    """Now and then no decision at first; the key is told, as an endpoint may."""
    length = sum(len(message["content"]) for message in body["messages"])
    return says(("Well.", '{"action": "buy"}', '{"action": "sell"}')[length % 3])


def test_a_board_is_verified_by_a_replay_of_somebodys_cache(run):
    pytest.importorskip("openai")
    words = ("--agents", "flat,llm:openai/stub", *QUICK)
    with Stub(answer) as stub:
        text = run(*BOARD, *words, "--base-url", stub.url).out
        asked = len(stub.requests)
        theirs = Path(os.environ["FINTRADING_CACHE"]) / "replies.sqlite"
        assert theirs.rename("theirs.sqlite")
    again = [*BOARD[:-1], "again.db"]
    replay = ("--cache", "replay", "--cache-file", "theirs.sqlite")
    replayed = run(*again, *words, "--base-url", stub.url, *replay).out
    assert last(replayed.replace("again.db", "board.db")) == last(text)
    assert len(stub.requests) == asked > 5
    assert "2 episodes are what their" in run("rescore", "again.db").out
    row = next(row for row in rows(Path("again.db")) if "model" in row)
    assert (row["cache_hits"], row["paid_usd"]) == (row["calls"], 0)


def test_the_address_of_an_endpoint_is_the_same_said_by_flag_or_variable(run, monkeypatch):
    pytest.importorskip("openai")
    words = ("--agents", "llm:openai/stub", *QUICK)
    with Stub(answer) as stub, Stub(answer) as other:
        run(*BOARD, *words, "--base-url", stub.url)
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        assert "board.db: 1 episodes, 0 of them played now" in run(*BOARD, *words).out
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        assert "board.db: 2 episodes, 1 of them played now" in run(*BOARD, *words).out
    assert len({row["agent"] for row in rows(Path("board.db"))}) == 2


def test_seconds_are_told_where_the_board_knows_them(run):
    pytest.importorskip("openai")
    words = ("--agents", "llm:openai/stub", *QUICK)
    with Stub(answer, latency=0.05) as stub:
        run(*BOARD, *words, "--base-url", stub.url)
        text = run(*BOARD, *words, "--base-url", stub.url, "--timesteps", 100, "--dry-run").out
    least = next(line for line in text.splitlines() if " min " in line).split()
    assert 4 <= float(least[-1]) <= 100  # 100 calls of at least 0.05 s, and of a second where much else goes on
