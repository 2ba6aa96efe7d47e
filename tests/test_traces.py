"""A run's traces as rows of the board, and the arguments of `fintrading-eval`: all that needs no verifiers."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fintrading_eval import command
from fintrading_eval.traces import components, keep, read, rows
from fintrading_gym import cli
from fintrading_gym import leaderboard as board
from fintrading_gym.ledger import Ledger, evaluate
from fintrading_gym.replies import parse
from fintrading_gym.rescore import rescore
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.store import digest, episodes, writing
from fintrading_gym.store import rows as board_rows

# One episode of three days, written by vf-eval 0.4.0 against a stub that says buy.
REAL = json.loads((Path(__file__).parent / "traces.jsonl").read_text())


def copy(**paths):
    """The real episode with other values at some paths, such as {"ok": False}; parts are separated by __."""
    episode = json.loads(json.dumps(REAL))
    for path, value in paths.items():
        *way, last = [int(part) if part.isdecimal() else part for part in path.split("__")]
        part = episode
        for step in way:
            part = part[step]
        part[last] = value
    return episode


def written(tmp_path, *episodes):
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    return file


def run(monkeypatch, *arguments):
    """The exit code of `fintrading import`."""
    monkeypatch.setattr(sys, "argv", ["fintrading", "import", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_an_episode_is_the_row_that_the_leaderboard_makes_of_the_same_decisions(tmp_path):
    (row,) = rows(written(tmp_path, REAL))
    local, _ = board.played(find_player("llm:scripted/buy"), Task(timesteps=3, identity="real"))
    assert row.keys() == local.keys()
    theirs = (
        "agent",
        "seed",
        "model",
        "note",
        "tokens_in",
        "tokens_out",
        "cost_usd",
        "paid_usd",
        "prompt_sha256",
    )
    assert {name: row[name] for name in row if name not in theirs} == {
        name: local[name] for name in local if name not in theirs
    }
    assert row["agent"] == "verifiers:openai/gpt-4o-mini"
    assert (row["tokens_in"], row["tokens_out"], row["cost_usd"]) == (360, 24, None)


def test_episodes_of_one_task_are_numbered_as_seeds(tmp_path):
    other = copy(traces__0__task__data__persona="risk_averse")
    assert [row["seed"] for row in rows(written(tmp_path, REAL, other, REAL))] == [0, 0, 1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"traces__0__rewards__fintrading_score__score": 0.9}, "fintrading_score is 0.9, but its ledger gives 0.59"),
        ({"traces__0__rewards__fintrading_sharpe__score": 1.0}, "fintrading_sharpe is 1.0, but its ledger gives 0.0"),
        ({"traces__0__info__fintrading__ledger__log_return__1": 0.5}, "but its ledger gives"),
        ({"traces__0__info__fintrading__ledger__valid__0": False}, "but its ledger gives"),
        ({"traces__0__task__data__timesteps": 4}, "the ledger has 3 decisions, its task 4"),
        ({"traces__0__task__data__cell": "tsla_man"}, "No cell 'tsla_man'"),
        ({"traces__0__rewards": {}}, "is no episode of fintrading-eval (KeyError: 'fintrading_score')"),
        ({"traces": []}, "is no episode of fintrading-eval"),
        ({"traces__0__info__fintrading__data_sha256": "deadbeef"}, "another table of TSLA"),
        ({"traces__0__info__fintrading__ledger__date__0": "1999-01-01"}, "date of 2022-10-06 is 1999-01-01"),
        ({"traces__0__info__fintrading__ledger__market__1": 0.3}, "market of 2022-10-07 is 0.3"),
    ],
)
def test_a_line_that_does_not_hold_is_an_error_that_names_it(change, told, tmp_path, monkeypatch, capsys):
    file = written(tmp_path, REAL, copy(**change))
    with pytest.raises(ValueError, match=r"traces\.jsonl:2") as fault:
        rows(file)
    assert told in str(fault.value)
    assert run(monkeypatch, file) == 2
    assert "traces.jsonl:2" in capsys.readouterr().err


def test_a_line_that_was_cut_off_is_an_error(tmp_path):
    file = written(tmp_path, REAL)
    file.write_text(file.read_text() + json.dumps(REAL)[:500])
    with pytest.raises(ValueError, match=r"traces.jsonl:2 is no episode .*--resume"):
        rows(file)
    with pytest.raises(ValueError, match="holds no episode"):
        rows(written(tmp_path))


def test_a_failed_episode_has_no_score_however_good_its_ledger_looks(tmp_path, monkeypatch, capsys):
    error = {"type": "ProviderError", "message": "it broke"}
    file = written(tmp_path, REAL, copy(ok=False, errors=[error]))
    good, bad = rows(file)
    assert good["failure"] is None
    assert (bad["score"], bad["coverage"], bad["failure"]) == (None, 0.0, "ProviderError: it broke")
    assert "cumulative_return" not in bad
    assert run(monkeypatch, file, "--csv", tmp_path / "rows.csv", "--json", tmp_path / "rows.json") == 1
    assert "is not ranked: 1 of 2 episodes failed" in capsys.readouterr().out
    assert json.loads((tmp_path / "rows.json").read_text()) == [good, bad]
    assert (tmp_path / "rows.csv").read_text().count("\n") == 3


def test_a_ledger_whose_rewards_were_forged_with_it_is_found_out(tmp_path):
    forged = copy(traces__0__info__fintrading__ledger__log_return=[0.3, 0.3, 0.3])
    made = evaluate(Ledger(**forged["traces"][0]["info"]["fintrading"]["ledger"]))
    for name, value in {"fintrading_score": made["score"], **components(made)}.items():
        forged["traces"][0]["rewards"][name]["score"] = value
    with pytest.raises(ValueError, match=r"log_return of 2022-10-06 is 0\.3, but its decisions give"):
        rows(written(tmp_path, forged))


def test_what_a_trace_says_of_its_seat_takes_no_column_of_the_boards(tmp_path):
    (row,) = rows(written(tmp_path, copy(traces__0__info__fintrading_seat={"score": 2.0, "agent": "other"})))
    assert row["score"] < 1
    assert row["agent"] == "verifiers:openai/gpt-4o-mini"


def test_a_reply_may_hold_any_line_separator(tmp_path):
    file = tmp_path / "traces.jsonl"
    file.write_bytes(json.dumps(copy(note="a\u2028b\u2029c\u0085d"), ensure_ascii=False).encode() + b"\n\n")
    assert len(rows(file)) == 1


def test_an_episode_that_ended_before_its_seat_was_taken_is_a_failed_row(tmp_path):
    error = {"type": "TimeoutError", "message": "the episode took too long"}
    lost = copy(ok=False, traces=[], errors=[error], task=REAL["traces"][0]["task"])
    for order in ([REAL, lost], [lost, REAL]):
        made = rows(written(tmp_path, *order))
        assert {row["agent"] for row in made} == {"verifiers:openai/gpt-4o-mini"}
        assert [row["failure"] for row in made if row["failure"]] == ["TimeoutError: the episode took too long"]


def test_what_broke_an_episode_off_comes_first(tmp_path):
    told = {"failure": "day 2: SeatEnded: the seat's run ended: max_turns"}
    (row,) = rows(written(tmp_path, copy(ok=False, traces__0__info={"fintrading": told})))
    assert row["failure"] == told["failure"]


# ------------------------------------------------------------------------------------------ on a board


def onto(path, *files):
    """How many episodes each of the files added."""
    added = []
    for file in files:
        with writing(path, {}) as kept:
            added.append(keep(kept, read(file))[0])
    return added


def test_a_second_run_of_a_task_gets_the_seeds_that_are_free_and_a_second_import_none(tmp_path):
    one = written(tmp_path, REAL, copy(id="b"))
    path = tmp_path / "board.db"
    assert onto(path, one, one) == [2, 0]
    assert onto(path, written(tmp_path, copy(id="c"), copy(id="d", traces__0__task__data__persona="risk_averse"))) == [
        2
    ]
    assert sorted((row["persona"], row["seed"]) for row in board_rows(path)) == [
        ("adaptive", 0),
        ("adaptive", 1),
        ("adaptive", 2),
        ("risk_averse", 0),
    ]
    assert all(rescore(stored) == ([], "") for stored in episodes(path))


BROKE = [{"type": "ProviderError", "message": "it broke"}]
AVERSE = {"traces__0__task__data__persona": "risk_averse"}
OTHER_MODEL = {"traces__0__agent__config__model": "openai/other"}
FAILED = copy(id="f", ok=False, errors=BROKE)  # in the run "fixture"
LOST = copy(id="l", ok=False, traces=[], errors=BROKE, task=REAL["traces"][0]["task"])  # before its seat was taken
BY_ANOTHER_RUN = {"run": {"type": "eval", "id": "another", "name": "another"}}


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ([REAL, FAILED], [REAL, copy(id="h")], []),  # vf-eval ... --resume
        ([FAILED], [copy(id="h", ok=False, errors=BROKE)], ["h"]),  # the same, in vain
        ([FAILED], [copy(id="h", **BY_ANOTHER_RUN)], []),
        ([FAILED], [copy(id="h", ok=False, errors=BROKE, **BY_ANOTHER_RUN)], ["f", "h"]),
        ([FAILED, copy(id="g", ok=False, errors=BROKE)], [copy(id="h")], ["g"]),  # one for one
        ([FAILED], [copy(id="h", **AVERSE)], ["f"]),
        ([FAILED], [copy(id="h", **OTHER_MODEL)], ["f"]),  # of a run of the same name
        ([FAILED], [copy(id="h", traces__0__agent__config__sampling={"temperature": 0.5})], ["f"]),
        ([REAL, FAILED], [REAL, FAILED, copy(id="h")], ["f"]),  # the run that it is of goes on, and has it still
        ([LOST], [copy(id="h")], []),
        ([LOST], [copy(id="h", **BY_ANOTHER_RUN)], ["l"]),  # whose it was, nobody knows
        ([LOST], [copy(id="h", **AVERSE)], ["l"]),
    ],
)
def test_what_failed_makes_way_for_what_plays_the_same_again(before, after, left, tmp_path):
    path = tmp_path / "board.db"
    onto(path, written(tmp_path, *before))
    known = {episode["id"] for episode in before}
    assert onto(path, written(tmp_path, *after)) == [len([one for one in after if one["id"] not in known])]
    assert {one.recipe["episode"] for one in episodes(path) if one.row["failure"]} == set(left)
    good = [one.row for one in episodes(path) if not one.row["failure"]]
    assert len(good) == len({one["id"] for one in [*before, *after] if one["ok"]})
    # Whatever is imported once more, in whatever order, changes nothing: what was set aside is known.
    held = digest(path)
    assert onto(path, *(written(tmp_path, *one) for one in (before,))) == [0]
    assert onto(path, *(written(tmp_path, *one) for one in (after,))) == [0]
    assert digest(path) == held


def test_the_seed_of_what_failed_is_free_again(tmp_path):
    path = tmp_path / "board.db"
    onto(path, written(tmp_path, FAILED, REAL), written(tmp_path, copy(id="h"), REAL))
    assert [(row["seed"], row["failure"]) for row in board_rows(path)] == [(0, None), (1, None)]


def test_what_is_set_aside_is_said_and_no_more_a_failure(tmp_path, monkeypatch, capsys):
    path = tmp_path / "board.db"
    assert run(monkeypatch, path, written(tmp_path, FAILED, copy(id="r", **AVERSE))) == 1
    assert "set aside" not in capsys.readouterr().out
    assert run(monkeypatch, path, written(tmp_path, copy(id="h"), copy(id="r", **AVERSE))) == 0
    told = capsys.readouterr().out
    assert f"{path}: 2 episodes, 1 of them new\n1 failed before, played again now, and set aside: " in told
    assert "set aside: verifiers:openai/gpt-4o-mini on tsla_main/adaptive\n" in told
    assert "is not ranked" not in told


def test_a_setting_that_changes_the_answers_makes_another_agent(tmp_path):
    (made,) = read(written(tmp_path, copy(traces__0__agent__config__sampling={"temperature": 0.5, "top_p": None})))
    assert made.row["agent"] == "verifiers:openai/gpt-4o-mini [temperature=0.5]"
    (made,) = read(written(tmp_path, copy(traces__0__agent__config__harness__id="bash")))
    assert made.row["agent"] == "verifiers:openai/gpt-4o-mini [harness=bash]"
    (made,) = read(written(tmp_path, copy(traces__0__agent__config__harness__id="fintrading_eval")))
    assert made.row["agent"] == "verifiers:openai/gpt-4o-mini"
    lost = copy(id="l", ok=False, traces=[], errors=[], task=REAL["traces"][0]["task"])
    tuned = copy(traces__0__agent__config__sampling={"temperature": 0.5})
    assert {one.row["agent"] for one in read(written(tmp_path, lost, tuned))} == {
        "verifiers:openai/gpt-4o-mini [temperature=0.5]"
    }


def test_the_calls_of_an_episode_have_the_messages_that_its_trace_holds_once(tmp_path):
    (made,) = read(written(tmp_path, REAL))
    nodes = REAL["traces"][0]["nodes"]
    for day, entry in enumerate(made.episode.log):
        (call,) = entry["calls"]
        assert [message["content"] for message in call["messages"]] == [
            nodes[0]["message"]["content"],
            nodes[2 * day + 1]["message"]["content"],
        ]
        assert parse(call["content"]) == made.episode.decisions[day]


def test_calls_that_are_not_in_the_trace_are_an_error_that_names_the_line(tmp_path):
    for change in ({"traces__0__calls": []}, {"traces__0__info__fintrading_calls": []}):
        with pytest.raises(ValueError, match=r"traces.jsonl:1 is no episode of fintrading-eval"):
            read(written(tmp_path, copy(**change)))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("", "--help"),
        ("--help", "fintrading-eval --help --no-push"),
        ("--no-serve", "--help"),
        ("-m a/b --no-serve -n 1", "fintrading-eval -m a/b -n 1 --no-push"),
        ("--no-serve fintrading_eval -m a/b", "fintrading_eval -m a/b --no-push"),
        ("fintrading_eval -m a/b --no-push", "fintrading_eval -m a/b --no-push"),
        ("-m a/b --env.taskset.id fintrading-eval --push", "-m a/b --env.taskset.id fintrading-eval --push"),
        ("--env.taskset.identity real --push", "fintrading-eval --env.taskset.identity real --push"),
        ("@ run.toml", "@ run.toml --no-push"),
        ("-m a/b --run-name", "fintrading-eval -m a/b --run.name --no-push"),  # vf-eval says that it wants a value
        # What is in no table, and what is no value of a switch, is told as it was written.
        ("-m a/b --save-all_of it=x", "fintrading-eval -m a/b --save-all_of it=x --no-push"),
        ("-m a/b --no-push=perhaps", "fintrading-eval -m a/b --no-push=perhaps --no-push"),
        ("-m a/b --rich.show-logs", "fintrading-eval -m a/b --rich.show-logs --no-push"),
        ("-m a/b --run.dir true --push", "fintrading-eval -m a/b --run.dir true --push"),
        ("-m a/b --push -n 1 --no-push", "fintrading-eval -m a/b --push -n 1 --no-push"),  # the last one holds
    ],
)
def test_the_arguments_of_vf_eval_are_made_of_both_spellings(given, made):
    assert command.arguments(given.split()) == made.split()


@pytest.mark.parametrize("spelling", ["--run-name X", "--run_name X", "--run.name X"])
def test_a_flag_with_a_value_has_one_meaning_in_every_spelling(spelling):
    flag, value = spelling.split()
    start, end = ["fintrading-eval", "-m", "a/b"], ["--no-push"]
    assert command.arguments(["-m", "a/b", flag, value]) == [*start, "--run.name", "X", *end]
    assert command.arguments(["-m", "a/b", f"{flag}={value}"]) == [*start, "--run.name=X", *end]
    assert command.arguments(["-m", "a/b", f"{flag}=a=b c"]) == [*start, "--run.name=a=b c", *end]


@pytest.mark.parametrize("name", command.SWITCHES)
@pytest.mark.parametrize("on", [True, False])
def test_a_switch_has_one_meaning_in_every_spelling(name, on):
    (yes, no), dash = ("true", "false") if on else ("false", "true"), "--no"
    spellings = [f"--{name} {yes}", f"--{name}={yes}", f"--{name}={yes.upper()}", f"--{name} {int(on)}"]
    spellings += [f"{dash}{sign}{name}{mid}{no}" for sign in "-_" for mid in " ="]
    spellings += [f"--{name}"] if on else [f"{dash}-{name}", f"{dash}_{name}"]
    told = command.SWITCHES[name][0 if on else 1]
    for spelling in spellings:
        made = command.arguments(["-m", "a/b", *spelling.split(), "-n", "1"])
        pushed = [] if name == "push" else ["--no-push"]
        assert made == ["fintrading-eval", "-m", "a/b", *([told] if told else []), "-n", "1", *pushed], spelling


@pytest.mark.skipif(find_spec("verifiers") is not None, reason="verifiers is installed here")
def test_a_missing_extra_is_told_with_the_line_that_installs_it(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "pip install 'fintrading-gym[verifiers]'" in capsys.readouterr().err
