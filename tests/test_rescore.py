"""An episode is held against what it is made of: each forgery is told, and what cannot be told is not called wrong."""

import json
import sys
from dataclasses import asdict, replace

import pytest
from conftest import two_futures, window_of

from fintrading_agents.committee import committee
from fintrading_agents.models.scripted import SCRIPTS
from fintrading_gym import rescore as module
from fintrading_gym.leaderboard import as_row
from fintrading_gym.ledger import Ledger
from fintrading_gym.metrics import earned
from fintrading_gym.recipes import recipe_of
from fintrading_gym.replies import Decision
from fintrading_gym.rescore import rescore
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.store import episodes, writing

TASK = Task("tsla_main", timesteps=6, cost_bps=3.0)
GAMES = [
    TASK,
    Task("nvda_bull_2023", timesteps=6, hold="flat", fill="next_open", cost_bps=1.5),
    Task("tsla_ablation", world="mirror", timesteps=20),
    Task("TSLA:2022-10-06:2022-10-20", "risk_averse", seed=3, timesteps=50, identity="real"),
]


def stored(player, task, path, change=lambda recipe, row, episode: (recipe, row, episode)):
    """An episode as it is read from a board, perhaps written by somebody who forged it."""
    episode = player.play(task)
    with writing(path, {}) as kept:
        kept.add(*change(recipe_of(player, task), as_row(player, task, episode), episode))
    (one,) = episodes(path)
    return one


@pytest.mark.parametrize("task", GAMES, ids=str)
@pytest.mark.parametrize("name", ["random", "oracle", "llm:scripted/momentum", "llm:scripted/prose"])
def test_what_was_played_is_what_it_says(name, task, tmp_path):
    assert rescore(stored(find_player(name), task, tmp_path / "b.db")) == ([], "")


def test_an_episode_that_failed_is_checked_as_far_as_it_went(tmp_path):
    def breaks(task):
        days = iter([2, 0, 1])
        return lambda observation: next(days)

    def scored(recipe, row, episode):
        return recipe, row | {"score": 0.9}, episode

    assert rescore(stored(Player("breaks", breaks), TASK, tmp_path / "b.db")) == ([], "")
    found, _ = rescore(stored(Player("breaks", breaks), TASK, tmp_path / "forged.db", scored))
    assert found == ["it failed, and has a score of 0.9 and a coverage of 0.0"]


def forged(row=None, ledger=None, calls=None, decisions=None, recipe=None):
    """A change to an episode: columns of its row, entries of its ledger's first day, parts of its first call."""

    def change(was, its_row, episode):
        columns = asdict(episode.ledger)
        for name, value in (ledger or {}).items():
            columns[name] = (value, *columns[name][1:])
        log = json.loads(json.dumps(episode.log))
        if calls:
            log[0]["calls"][0] |= calls
        decided = (Decision("hold"), *episode.decisions[1:]) if decisions else episode.decisions
        made = replace(episode, ledger=Ledger(**columns), log=tuple(log), decisions=decided)
        return was | (recipe or {}), its_row | (row or {}), made

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (forged(row={"score": 0.99}), "score is 0.99, but its ledger gives 0."),
        (forged(row={"luck": 0.0}), "luck is 0.0, but its ledger gives"),
        (forged(row={"excess": None}), "excess is None, but its ledger gives"),
        (forged(row={"coverage": 0.5}), "coverage is 0.5, but its ledger gives 1.0"),
        (forged(row={"cost_bps": 0.0}), "cost_bps is 0.0, but it was played with 3.0"),
        (forged(row={"cell": "spy_bear_2022"}), "cell is spy_bear_2022, but it was played with tsla_main"),
        (
            forged(row={"agent": "llm:openai/gpt"}),
            "agent is llm:openai/gpt, but it was played with llm:scripted/recogniser",
        ),
        (forged(row={"format_nudges": 7}), "format_nudges is 7, but its calls give 0"),
        (forged(row={"calls": 1}), "calls is 1, but its calls give 6"),
        (forged(ledger={"log_return": 0.5}), "log_return of 2022-10-06 is 0.5, but its actions give"),
        (forged(ledger={"position": 1}), "position of 2022-10-06 is 1, but its actions give -1"),
        (forged(ledger={"action": 2}), "the action of 2022-10-06 is 2, but the agent decided"),
        (forged(ledger={"valid": False}), "the action of 2022-10-06 is 0, but the agent decided"),
        (forged(ledger={"action": 9}), "it cannot be computed again (ValueError: "),
        (forged(decisions=True), "the action of 2022-10-06 is 0, but the agent decided Decision(action='hold'"),
        (forged(calls={"content": '{"action": "buy"}'}), "day 1, call 1: it was read as {'action': 'sell'"),
        (forged(calls={"refusal": "No."}), "but its reply says Decision(action=None, reason='refusal'"),
        (forged(recipe={"version": "0.0.1"}, row={"version": "0.0.1", "score": 2.0}), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_forgery_is_told(change, told, tmp_path):
    found, why_not = rescore(stored(find_player("llm:scripted/recogniser"), TASK, tmp_path / "b.db", change))
    assert told in "; ".join(found)
    assert bool(found) == bool(told)
    assert why_not == ("" if told else "it was played by version 0.0.1, and this is 0.1.0")


def test_a_ledger_that_is_forged_as_a_whole_is_told_by_the_prices(tmp_path):
    def change(recipe, row, episode):
        market = [abs(value) for value in episode.ledger.market]  # it always rises
        position, log_return = earned(market, episode.ledger.action, cost_bps=TASK.cost_bps)
        columns = {"market": market, "position": position.tolist(), "log_return": log_return.tolist()}
        ledger = replace(episode.ledger, **{name: tuple(column) for name, column in columns.items()})
        played = replace(episode, ledger=ledger, score=module.evaluate(ledger, "keep", TASK.cost_bps)["score"])
        return recipe, as_row(find_player("momentum"), TASK, played), played

    found, _ = rescore(stored(find_player("momentum"), TASK, tmp_path / "b.db", change))
    assert all("but its decisions give" in line for line in found)
    assert any(line.startswith("market of 2022-10-06") for line in found)


def test_days_that_were_left_out_are_told(tmp_path):
    def change(recipe, row, episode):
        ledger = Ledger(**{name: column[:-1] for name, column in asdict(episode.ledger).items()})
        played = replace(episode, ledger=ledger, decisions=episode.decisions[:-1])
        return recipe, as_row(find_player("momentum"), TASK, played) | module.evaluate(ledger, "keep", 3.0), played

    found, _ = rescore(stored(find_player("momentum"), TASK, tmp_path / "b.db", change))
    assert "it has 5 decisions, and its task 6" in found


def test_prices_that_are_not_here_are_said_and_all_else_is_checked(tmp_path):
    one, other = two_futures(tmp_path)
    table = tmp_path / "a.csv"
    content = table.read_bytes()
    for change, found in ((forged(), []), (forged(row={"score": 0.99}), ["score"])):
        board = tmp_path / f"{len(found)}.db"
        table.write_bytes(content)
        episode = stored(find_player("momentum"), Task(one, timesteps=5), board, change)
        table.write_bytes((tmp_path / "b.csv").read_bytes())
        told, why_not = rescore(episode)
        assert [line.split()[0] for line in told] == found
        assert why_not == f"the prices of {one} that are here are others"
        table.unlink()
        assert "its prices are not here: " in rescore(episode)[1]
    assert other


def test_a_window_of_ones_own_cannot_be_told_by_another(tmp_path):
    episode = stored(find_player("flat"), Task(window_of([1.0, 2.0, 3.0, 4.0])), tmp_path / "b.db")
    found, why_not = rescore(episode)
    assert (found, why_not.startswith("its prices are not here: ")) == ([], True)


@pytest.mark.parametrize("form", ["schema", "prose"])
def test_replies_are_read_again_as_the_agent_read_them(form, tmp_path, monkeypatch):
    def answer(messages):
        if "FINAL RECOMMENDATION" in messages[-1]["content"] + messages[0]["content"]:
            return "It falls.\nFINAL RECOMMENDATION: SELL\nCONFIDENCE: 60%\nTARGET PRICE: $90.5"
        return '{"action": "sell", "confidence": 0.6}'

    one = replace(find_player("committee:scripted/committee"), options={"form": form, "every": 2})
    monkeypatch.setitem(SCRIPTS, "committee", answer)
    episode = stored(one, TASK, tmp_path / "b.db")
    assert {decision.action for decision in episode.episode.decisions} == {"sell"}
    assert rescore(episode) == ([], "")
    monkeypatch.delattr(committee, "readers")
    assert len(rescore(episode)[0]) == 3  # a verdict as `replies.parse` would read it is another


def test_no_module_is_imported_for_a_board(tmp_path):
    episode = stored(find_player("llm:scripted/buy"), TASK, tmp_path / "b.db")
    name = {"agent": "antigravity:fly"}
    elsewhere = replace(episode, recipe=episode.recipe | name, row=episode.row | name)
    assert rescore(elsewhere) == ([], "")
    assert "antigravity" not in sys.modules
