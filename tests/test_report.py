"""The page of a board: what is in it, that it is the same for the same board, and that texts stay as they were."""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import zlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from conftest import table_of
from scripted_boards import HOSTILE, STAGES, filled, talker, tasks_of
from typer.testing import CliRunner

from fintrading_gym import cli
from fintrading_gym.errors import MissingExtra
from fintrading_gym.metrics import hindsight
from fintrading_gym.report import page as pages
from fintrading_gym.report.contents import contents
from fintrading_gym.report.page import SCRIPTS, page
from fintrading_gym.report.texts import OTHER_NUMBERS, OTHER_PRICES, Shared, texts_of
from fintrading_gym.rollout import Task
from fintrading_gym.store import digest, episodes, rows

CELLS = ("tsla_main", "nvda_bull_2023")
COMMITTEE = talker("committee:scripted/prose", STAGES, content=200)


def broken(task):
    """An agent that fails on its third day."""
    days = []

    def decide(observation):
        days.append(observation)
        if len(days) == 3:
            raise RuntimeError("no more")
        return 2

    return decide


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "board.db"
    players = ["buy_and_hold", "momentum", "oracle", COMMITTEE, talker("llm:scripted/prose", hostile=HOSTILE), broken]
    return filled(path, players, tasks_of(CELLS, ("adaptive", "risk_averse"), timesteps=12))


@cache
def told(path, texts="all"):
    return contents(list(episodes(path)), "Title", (), texts)


def run(*words):
    return CliRunner().invoke(cli.app, ["report", *map(str, words)])


# ----------------------------------------------------------------------------------------- what it says


def test_the_curves_are_those_of_the_ledgers(board):
    data = told(board)
    for stored, episode in zip(episodes(board), data["episodes"], strict=True):
        ledger, market = stored.episode.ledger, data["markets"][episode["market"]]
        days = len(ledger.date)
        assert data["agents"][episode["agent"]]["name"] == stored.row["agent"]
        assert np.array(episode["earned"]) / 1e8 == pytest.approx(ledger.log_return, abs=1e-8)
        assert [int(action) for action in episode["actions"]] == list(ledger.action)
        assert ["-0+".index(sign) - 1 for sign in episode["positions"]] == list(ledger.position)
        assert tuple(market["dates"][:days]) == ledger.date
        assert market["closes"][:days] == pytest.approx(ledger.price, rel=1e-6)
        assert np.diff(np.log(market["closes"]))[:days] == pytest.approx(ledger.market, abs=1e-6)


def test_buy_and_hold_and_the_best_in_hindsight_are_those_of_the_rows(board):
    data = told(board)
    for stored, episode in zip(episodes(board), data["episodes"], strict=True):
        market = data["markets"][episode["market"]]
        if stored.row["failure"] is None:
            assert sum(market["buy_and_hold"]) / 1e8 == pytest.approx(stored.row["buy_and_hold"], abs=1e-6)
            assert sum(market["oracle"]) / 1e8 == pytest.approx(hindsight(stored.episode.ledger.market)[1], abs=1e-6)


def test_a_part_of_the_board_holds_the_episodes_of_its_filters(board):
    (real,) = told(board)["worlds"]
    parts = {(part["cell"], part["persona"], part["identity"]): part["standings"] for part in real["parts"]}
    scores = {s["agent"]: s["means"].get("score") for s in parts["tsla_main", "adaptive", None]}
    wanted = [row for row in rows(board) if row["cell"] == "tsla_main" and row["persona"] in (None, "adaptive")]
    assert scores == {row["agent"]: pytest.approx(row["score"]) if row["score"] else None for row in wanted}
    assert {s["agent"] for s in parts[None, None, "masked"]} == {"committee:scripted/prose", "llm:scripted/prose"}


def test_without_the_statistics_extra_there_is_the_ranking_and_the_line_that_installs_it(board, monkeypatch):
    with_them = told(board)["worlds"][0]["parts"][0]

    def missing(rows):
        raise MissingExtra("What a board allows to conclude", "stats")

    monkeypatch.setattr("fintrading_gym.report.contents.analyse", missing)
    part = contents(list(episodes(board)), "Title", (), "none")["worlds"][0]["parts"][0]
    assert [s["rank"] for s in part["standings"]] == [s["rank"] for s in with_them["standings"]]
    assert (part["comparisons"], [s["intervals"] for s in part["standings"]]) == ([], [{}] * 6)
    assert "pip install 'fintrading-gym[stats]'" in part["words"][0]
    assert with_them["comparisons"]
    assert any(s["intervals"] for s in with_them["standings"])


def test_a_cost_that_is_unknown_is_not_nothing_and_who_asks_no_model_has_none(board):
    standings = {s["agent"]: s for s in told(board)["worlds"][0]["parts"][0]["standings"]}
    assert standings["llm:scripted/prose"]["cost_usd"] == pytest.approx(0.001 * 12 * 4)
    assert not standings["momentum"]["asks"]
    stored = [replace(one, row=one.row | {"cost_usd": None}) for one in episodes(board)]
    (real,) = contents(stored, "Title", (), "none")["worlds"]
    assert {s["cost_usd"] for s in real["parts"][0]["standings"] if s["asks"]} == {None}


def test_worlds_and_rules_make_markets_of_their_own(tmp_path):
    task = Task("tsla_main", timesteps=5)
    tasks = [task, replace(task, world="mirror"), replace(task, cost_bps=10.0), replace(task, timesteps=4)]
    data = told(filled(tmp_path / "board.db", ["momentum"], tasks))
    assert {market["name"] for market in data["markets"]} == {
        "tsla_main timesteps=5 cost_bps=0.0",
        "tsla_main timesteps=5 cost_bps=10.0",
        "tsla_main timesteps=4 cost_bps=0.0",
        "tsla_main",
    }
    assert [world["name"] for world in data["worlds"]] == ["real", "mirror"]


# ------------------------------------------------------------------------------------------- the texts


def unpacked(packed, block):
    """What the page's `opened` makes of it."""
    if isinstance(packed, bool) or packed is None:
        return packed
    if isinstance(packed, int):
        return "\n".join(block["lines"][line] for line in block["texts"][packed])
    if isinstance(packed, str):
        return float(packed)
    if isinstance(packed, list):
        return [unpacked(part, block) for part in packed]
    return {name: unpacked(part, block) for name, part in packed.items()}


def days_of(path, texts="all"):
    """Every stored episode, and its unpacked days."""
    stored, data = list(episodes(path)), told(path, texts)
    blocks = json.loads(json.dumps(texts_of(stored, data["episodes"], texts)))
    for number, (one, episode) in enumerate(zip(stored, data["episodes"], strict=True)):
        block = blocks[episode["market"]]
        yield one, [unpacked(entry, block) for entry in block["days"].get(str(number), [])]


def test_what_was_sent_and_answered_stands_there_to_the_letter(board):
    seen = 0
    for stored, days in days_of(board):
        assert len(days) == max(len(stored.episode.ledger.date), len(stored.episode.log))
        for entry, day in zip(stored.episode.log, days, strict=False):
            for call, shown in zip(entry["calls"], day.get("calls", []), strict=True):
                assert shown["messages"] == call["messages"]
                assert (shown["content"], shown["stage"]) == (call["content"], call["stage"])
                assert shown["usage"] == call["usage"]
                seen += 1
            assert day.get("log", {}) == {name: value for name, value in entry.items() if name != "calls"}
    assert seen == 12 * 4 * (1 + len(STAGES))


def test_an_agent_without_a_model_is_shown_the_days_view_and_no_persona_that_it_ignores(board):
    for stored, days in days_of(board):
        if stored.row["agent"] == "momentum":
            env = Task(stored.row["cell"], timesteps=12).make(observation="text").unwrapped
            text = env.reset()[0]
            for day, action in zip(days, stored.episode.ledger.action, strict=True):
                assert day["view"] + text.splitlines(keepends=True)[-1] == text
                assert "your profile" not in day["view"]
                text = env.step(action)[0]


def test_a_day_that_cannot_be_shown_again_says_why(tmp_path):
    prices = tmp_path / "mine.csv"
    table_of(np.linspace(50, 90, 40)).to_csv(prices, index=False)
    path = filled(tmp_path / "board.db", ["momentum"], [Task(f"{prices}:2022-01-10:2022-02-05", timesteps=9)])
    (stored,) = episodes(path)
    wrong = replace(
        stored, episode=replace(stored.episode, ledger=replace(stored.episode.ledger, log_return=(1.0,) * 9))
    )
    assert why([wrong]) == {OTHER_NUMBERS}
    table_of(np.linspace(50, 91, 40)).to_csv(prices, index=False)
    assert why([stored]) == {OTHER_PRICES}
    prices.unlink()
    assert why([stored]) == {OTHER_PRICES}
    assert told(path)["markets"][0]["ticker"] == "MINE"


def why(stored):
    (block,) = texts_of(stored, contents(stored, "Title", (), "all")["episodes"], "all")
    block = json.loads(json.dumps(block))
    return {unpacked(day, block)["no_view"] for days in block["days"].values() for day in days}


@pytest.mark.parametrize(
    ("texts", "sent", "said"), [("all", True, True), ("replies", False, True), ("none", False, False)]
)
def test_texts_can_be_left_out(board, texts, sent, said):
    calls = [call for _, days in days_of(board, texts) for day in days for call in day.get("calls", ())]
    assert (any("messages" in call for call in calls), any("content" in call for call in calls)) == (sent, said)
    assert told(board, texts)["texts"] == texts


def test_a_line_that_many_texts_share_is_kept_once():
    shared = Shared()
    packed = [shared.pack({"said": f"one\ntwo\n{k}", "n": k, "none": None, "yes": True}) for k in range(3)]
    assert list(shared.lines) == ["one", "two", "0", "1", "2"]
    assert packed[2] == {"said": 2, "n": "2", "yes": True}


# -------------------------------------------------------------------------------------------- the file


class Outline(html.parser.HTMLParser):
    """The elements of a page, and the content of each script and style."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.inline, self._inside = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = (dict(attributes).get("id") or tag) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.inline[self._inside] = self.inline.get(self._inside, "") + data


def test_the_same_board_gives_the_same_bytes_in_whatever_order_it_was_played(board, tmp_path):
    again = tmp_path / "again.db"
    players = ["buy_and_hold", broken, COMMITTEE, "momentum", talker("llm:scripted/prose", hostile=HOSTILE), "oracle"]
    filled(again, players, tasks_of(CELLS, ("adaptive", "risk_averse"), timesteps=12))
    assert again.read_bytes() != board.read_bytes()
    made = []
    for path in (board, again):
        assert run(path, "-o", tmp_path / "page.html").exit_code == 0
        made.append((tmp_path / "page.html").read_bytes())
    assert made[0] == made[1]


def test_the_pages_sha256_is_the_boards(board):
    assert told(board)["sha256"] == digest(board)


def test_the_policy_lets_through_the_pages_own_style_and_script_and_nothing_else(board, tmp_path):
    run(board, "-o", tmp_path / "page.html", "--title", "A & B <script>alert(1)</script>")
    outline = Outline((tmp_path / "page.html").read_text())
    policy = next(its["content"] for tag, its in outline.elements if its.get("http-equiv") == "Content-Security-Policy")
    for name, text in (("style", outline.inline["style"]), ("script", outline.inline["script"])):
        digest_of = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest_of}'" in policy
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    # A template of its own, one style, one script, and data that no browser runs.
    kinds = [its.get("type") for tag, its in outline.elements if tag == "script"]
    assert kinds == ["application/octet-stream"] * (len(kinds) - 1) + ["module"]
    assert not any(value.startswith(("http", "//")) for _, its in outline.elements for value in its.values() if value)
    data = json.loads(zlib.decompress(base64.b64decode(outline.inline["board"])))
    assert data["title"] == "A & B <script>alert(1)</script>"


def test_the_script_never_makes_markup_out_of_text():
    script = "".join((pages.HERE / "script" / f"{name}.js").read_text() for name in SCRIPTS)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|</script", script)
    assert {path.stem for path in (pages.HERE / "script").iterdir()} == set(SCRIPTS)


def test_what_looks_like_a_placeholder_in_the_data_stays_what_it_is(board):
    stored = list(episodes(board))
    data = contents(stored, "{{script}}", (), "none")
    text = page(data, texts_of(stored, data["episodes"], "none")).decode()
    assert "<h1>{{script}}</h1>" in text
    assert text.count('<script type="module">') == 1


# ----------------------------------------------------------------------------------------- the command


def test_the_command_writes_beside_the_board_and_says_how_large(board, tmp_path):
    mine = shutil.copy(board, tmp_path / "mine.db")
    done = run(mine)
    assert re.search(r"mine.html: 18 episodes of 6 agents, 0.\d MB", done.stdout.replace("\n", "")), done.output
    assert (tmp_path / "mine.html").stat().st_size < 500_000


AUDIT = {"agent": "llm:scripted/prose", "sentence": "s", "verdict": "undecided", "plan": {}, "identification": None,
         "recall": None, "invariance": {}, "gap": {}}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "content", "says"),
    [
        (["--texts", "some"], None, "No texts 'some'; there are"),
        (["--audit"], "{", "is no JSON"),
        (["--audit"], "[]", "is no audit; give what"),
        (["--audit"], json.dumps(AUDIT | {"gap": None}), "is no audit; give what"),
        (["--audit"], json.dumps(AUDIT | {"agent": "llm:scripted/pros"}), "Did you mean 'llm:scripted/prose'?"),
        (["--audit"], json.dumps(AUDIT), None),
    ],
)
def test_what_the_command_is_not_made_for_is_one_line(board, tmp_path, words, content, says):
    if content is not None:
        (tmp_path / "audit.json").write_text(content)
        words = [*words, tmp_path / "audit.json"]
    done = run(board, "-o", tmp_path / "page.html", *words)
    assert (done.exit_code == 0) == (says is None), done.output
    if says:
        assert says in str(done.exception)
        assert not (tmp_path / "page.html").exists()


def test_a_page_never_takes_the_place_of_its_board(board):
    before = board.read_bytes()
    assert "would be overwritten" in str(run(board, "-o", board.parent / "." / board.name).exception)
    assert board.read_bytes() == before


def test_a_board_that_is_not_there_or_is_empty_is_said(tmp_path):
    assert "There is no board" in str(run(tmp_path / "board.db").exception)
    filled(tmp_path / "board.db", [], [])
    assert "holds no episode yet" in str(run(tmp_path / "board.db").exception)
