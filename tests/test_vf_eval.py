"""The real `vf-eval` of two versions, in environments of their own, against the stub and the small local model."""

import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from stub_endpoint import FAULTS, Stub, says

from fintrading_agents.folders import cache_folder
from fintrading_agents.models import local
from fintrading_eval.traces import LEDGER, SEAT, keep, read, rows
from fintrading_gym.ledger import evaluate
from fintrading_gym.observations import PERSONAS
from fintrading_gym.rescore import rescore
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.store import episodes as board_episodes
from fintrading_gym.store import writing
from fintrading_gym.windows import EVALUATION

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
VERSIONS = ("0.3.2.dev118", "0.4.0")
CELLS = ("tsla_main", "nvda_bull_2023")
COUNTERS = ("empty_replies", "format_nudges", "self_heals")


@pytest.fixture(scope="module", params=VERSIONS)
def programs(request):
    """The folder of an environment's programs: made once, kept in the user's cache, with this checkout in it."""
    home = cache_folder() / f"verifiers-{request.param}-py{sys.version_info.major}.{sys.version_info.minor}"
    home.mkdir(parents=True, exist_ok=True)
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = "\n".join([f"verifiers=={request.param}", "hatchling", *needs])
    with (home / "lock").open("w") as lock:  # of another checkout's tests, which would put itself into it
        fcntl.flock(lock, fcntl.LOCK_EX)
        pip = [home / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        ready = home / "ready"
        if not ready.exists() or ready.read_text() != wanted:
            venv.create(home, with_pip=True, symlinks=True)  # it may be there already, and lack something new
            subprocess.run([*pip, *wanted.splitlines()], check=True, capture_output=True)
            ready.write_text(wanted)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT], check=True, capture_output=True)
        yield home / "bin"


def evaluated(programs, command, url, where):
    """What the command did, against an endpoint."""
    program, *arguments = shlex.split(command) if isinstance(command, str) else command
    arguments += ["--client.base-url", url, "--client.api-key-var", "STUB_KEY"]
    quiet = {"HOME": str(where), "PATH": os.environ["PATH"], "STUB_KEY": "hidden-key", "PYTHONPATH": str(where)}
    return subprocess.run([programs / program, *arguments], cwd=where, env=quiet, capture_output=True, text=True)


def episodes(where, name):
    return [json.loads(line) for line in (where / f"outputs/{name}/traces.jsonl").read_text().splitlines()]


def policy(body):
    """Answers a view with what its digest says, in all the manners of a model, and often better when it is told so."""
    view, *nudges = body["messages"][-1]["content"].split("\nYour reply was no decision")
    digest = hashlib.sha256(view.encode()).digest()
    if nudges and digest[1] % 3:
        return says('Sorry. {"action": "buy"}')
    manners = [
        says('{"action": "buy"}'),
        says('```json\n{"decision": "SELL",}\n```', reasoning_content="Falling."),
        says("<think>buy or sell</think>" + '{"action": "hold"}'),
        says("I would rather wait."),
        says('{"action": "buy"', finish_reason="length"),
        says('{"action": "buy"}', refusal="I cannot trade."),
        *(FAULTS[name] for name in ("empty", "only_reasoning", "content_filter")),
    ]
    return manners[digest[0] % len(manners)]


def test_an_episode_is_the_llm_seats_byte_for_byte(programs, tmp_path):
    knobs = (
        "--env.taskset.timesteps 9 --env.taskset.context window:2 --env.taskset.hold flat --env.taskset.max_nudges 1"
    )
    with Stub(policy) as stub:
        command = f"vf-eval fintrading-eval -m stub {knobs} -r 1 --no-rich --no-push --run.name twelve"
        done = evaluated(programs, command, stub.url, tmp_path)
        assert done.returncode == 0, done.stderr
        asked = Counter(json.dumps(body["messages"]) for body in stub.requests)
        seat = find_player("llm:openai/stub")
        options = {"base_url": stub.url, "cache": "off", "context": "window:2", "max_nudges": 1}
        player = Player(seat.name, seat.factory, seat.argument, options)
        tasks = [
            Task(cell, persona, timesteps=9, hold="flat", identity="real")
            for cell in EVALUATION
            for persona in PERSONAS
        ]
        with player.opened() as opened:
            played = [opened.play(task) for task in tasks]

    assert asked == Counter(json.dumps(c["messages"]) for e in played for day in e.log for c in day["calls"])
    traces = [episode["traces"][0] for episode in episodes(tmp_path, "twelve")]
    by_task = {(t["task"]["data"]["cell"], t["task"]["data"]["persona"]): t for t in traces}
    assert len(traces) == len(by_task) == 12
    for task, episode in zip(tasks, played, strict=True):
        trace, numbers = by_task[task.cell, task.persona], evaluate(episode.ledger, "flat")
        told = trace["info"][LEDGER]
        columns = {name: list(getattr(episode.ledger, name)) for name in told["ledger"]}
        assert json.dumps(told["ledger"]) == json.dumps(columns)
        assert json.dumps(told["raw"]) == json.dumps(numbers)
        assert trace["rewards"] == {
            "fintrading_score": {"score": episode.score, "weight": 1.0},
            **{
                f"fintrading_{name}": {"score": numbers[f"score_{name}"], "weight": 0.0}
                for name in ("cum_return", "sharpe", "stability", "discipline")
            },
        }
        assert told["data_sha256"] == task.window.load().sha256
        same = (*COUNTERS, "context", "detail", "prompt_sha256", "tokens_in", "tokens_out")
        assert [trace["info"][SEAT][name] for name in same] == [episode.facts[name] for name in same]
    # The policy is rich enough for all that to mean something.
    assert all(sum(episode.facts[name] for episode in played) for name in COUNTERS)
    assert {e.ledger.valid.count(True) for e in played} > {9}
    assert "hidden-key" not in (tmp_path / "outputs/twelve/traces.jsonl").read_text() + done.stdout + done.stderr
    imported = rows(tmp_path / "outputs/twelve/traces.jsonl")
    assert {(r["cell"], r["persona"]): r["score"] for r in imported} == {
        (task.cell, task.persona): episode.score for task, episode in zip(tasks, played, strict=True)
    }
    # On a board it has the steps and calls of the seat, too.
    with writing(tmp_path / "board.db", {}) as board:
        assert [keep(board, read(tmp_path / "outputs/twelve/traces.jsonl")) for _ in range(2)] == [(12, []), (0, [])]
    stored = {(one.row["cell"], one.row["persona"]): one for one in board_episodes(tmp_path / "board.db")}
    for task, episode in zip(tasks, played, strict=True):
        one = stored[task.cell, task.persona]
        assert rescore(one) == ([], "")
        assert one.row["agent"] == "verifiers:stub [context=window:2 max_nudges=1]"
        assert one.episode.decisions == episode.decisions
        assert [_as_said(day) for day in one.episode.log] == [_as_said(day) for day in episode.log]


def _as_said(day):
    """What of a day's calls hangs on the seat alone."""
    names = ("stage", "messages", "content", "reasoning", "refusal", "outcome", "finish_reason", "usage", "verdict")
    return json.loads(json.dumps([{name: call.get(name) for name in names} for call in day["calls"]]))


def test_an_episode_that_breaks_off_has_no_score(programs, tmp_path):
    def breaks(body):
        view = body["messages"][-1]["content"]
        unlucky = "TSLA" in view and "decisions taken: 2 of 5" in view
        return FAULTS["bad_request"] if unlucky else says('{"action": "buy"}')

    with Stub(breaks) as stub:
        knobs = f"--env.taskset.cells {' '.join(CELLS)} --env.taskset.personas adaptive --env.taskset.timesteps 5"
        command = f"fintrading-eval -m stub {knobs} --env.agent.max-turns 4 --no-rich --run-name cut"
        assert evaluated(programs, command, stub.url, tmp_path).returncode == 0  # vf-eval's way of telling nothing
    for episode in episodes(tmp_path, "cut"):
        (trace,) = episode["traces"]
        assert not episode["ok"]
        assert not trace["ok"]
        assert not any(trace.get("rewards", {}).values())
        assert trace["info"][LEDGER].keys() == {"env", "version", "data_sha256", "ledger", "failure"}
    board = {row["cell"]: row for row in rows(tmp_path / "outputs/cut/traces.jsonl")}
    assert [board[cell]["score"] for cell in CELLS] == [None, None]
    assert "day 3" in board["tsla_main"]["failure"]
    assert "field required" in board["tsla_main"]["failure"]
    assert "day 5: SeatEnded: the seat's run ended: max_turns" in board["nvda_bull_2023"]["failure"]


def test_a_resumed_run_takes_the_place_of_what_had_failed_in_it(programs, tmp_path):
    broken = True

    def breaks(body):
        return (
            FAULTS["bad_request"] if broken and "TSLA" in body["messages"][-1]["content"] else says('{"action": "buy"}')
        )

    path, traces = tmp_path / "board.db", tmp_path / "outputs/again/traces.jsonl"
    with Stub(breaks) as stub:
        knobs = f"--env.taskset.cells {' '.join(CELLS)} --env.taskset.personas adaptive --env.taskset.timesteps 2"
        first = f"fintrading-eval -m stub {knobs} --no_rich --no_serve=true --run_name=again --no-push true"
        done = evaluated(programs, first, stub.url, tmp_path)
        assert done.returncode == 0, done.stderr
        with writing(path, {}) as board:
            assert keep(board, read(traces)) == (2, [])
        broken = False
        resumed = "fintrading-eval @ outputs/again/configs/resolved/eval.json --resume"
        done = evaluated(programs, resumed, stub.url, tmp_path)
        assert done.returncode == 0, done.stderr
    assert len({episode["run"]["id"] for episode in episodes(tmp_path, "again")}) == 2  # the name alone stays
    with writing(path, {}) as board:
        assert keep(board, read(traces)) == (1, ["verifiers:stub on tsla_main/adaptive"])
    left = [(one.row["cell"], one.row["seed"], one.row["failure"]) for one in board_episodes(path)]
    assert sorted(left) == [("nvda_bull_2023", 0, None), ("tsla_main", 0, None)]


@pytest.mark.parametrize("program", ["vf-eval", "fintrading-eval"])
def test_the_readmes_command_runs(program, programs, tmp_path):
    block = next(b for b in re.findall(r"^```bash\n(.*?)^```", README, re.S | re.M) if f"\n{program} " in f"\n{b}")
    written = next(c for c in block.replace("\\\n", " ").splitlines() if c.startswith(f"{program} "))
    with Stub() as stub:
        done = evaluated(programs, written.split("#")[0], stub.url, tmp_path)
    assert done.returncode == 0, done.stderr
    (episode,) = episodes(tmp_path, re.search(r"--run[.-]name (\S+)", written)[1])
    assert episode["ok"]
    assert len(episode["traces"][0]["info"][LEDGER]["ledger"]["date"]) == 3
    runtime = episode["traces"][0]["agent"]["runtime"]
    assert runtime["type"] == "subprocess"


BAD = {
    "cells tsla_man": "No cell 'tsla_man'; there are ['tsla_main'",
    "personas bold": "No persona 'bold'",
    "hold kep": "No hold rule 'kep'; there are ['keep', 'flat']. Did you mean 'keep'?",
    "context window": "context='window' is none of last",
    "identity maskd": "Did you mean 'masked'",
    "max_nudges -1": "Input should be greater than or equal to 0",
}
TOO_LONG = {"timesteps 127": "timesteps=127: tsla_main has only 126 decisions"}


@pytest.mark.parametrize("knobs", [BAD, TOO_LONG])
def test_a_bad_knob_is_told_in_a_line(knobs, programs, tmp_path):
    flags = " ".join(f"--env.taskset.{knob}" for knob in knobs)
    done = evaluated(programs, f"fintrading-eval -m stub {flags}", "http://127.0.0.1:9/v1", tmp_path)
    assert done.returncode != 0
    said = re.sub(r"[│\s]+", " ", done.stdout + done.stderr)
    assert [told for told in knobs.values() if told not in said] == []
    assert "Traceback" not in said


# A harness that remembers the turns itself, as those of verifiers do; in its own process, so that nothing is installed.
STRANGER = """
import verifiers.v1 as vf
from fintrading_eval.env import ChatHarness, ChatHarnessConfig

class StrangeHarness(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, *parts):
        done = await ChatHarness(ChatHarnessConfig()).launch(*parts)
        parts[1].state.reply = None  # of the trace: a stranger does not know of it
        return done

__all__ = ["StrangeHarness"]
"""


@pytest.mark.parametrize("programs", VERSIONS[-1:], indirect=True)
def test_a_harness_that_remembers_is_told_the_new_turn_alone(programs, tmp_path):
    (tmp_path / "stranger.py").write_text(STRANGER)
    knobs = "--env.taskset.cells tsla_main --env.taskset.personas adaptive --env.taskset.timesteps 2"
    with Stub() as stub:
        command = f"fintrading-eval -m stub {knobs} --env.agent.harness.id stranger --no-rich --run-name strange"
        assert evaluated(programs, command, stub.url, tmp_path).returncode == 0
    (episode,) = episodes(tmp_path, "strange")
    assert episode["ok"], episode
    roles = [[message["role"] for message in body["messages"]] for body in stub.requests]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"]]
    first, second = (body["messages"] for body in stub.requests)
    assert second[:2] == first
    assert episode["traces"][0]["info"][LEDGER]["ledger"]["action"] == [2, 2]
    assert episode["traces"][0]["info"][SEAT]["context"] == "of harness stranger"


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the small model's runtime is not installed (extra: local)")
@pytest.mark.skipif(not local.present("smollm2"), reason="its weights are not here: fintrading models add smollm2")
@pytest.mark.parametrize("programs", VERSIONS[-1:], indirect=True)
def test_the_small_local_model_plays(programs, tmp_path):
    knobs = "--env.taskset.cells tsla_main --env.taskset.personas adaptive --env.taskset.timesteps 2"
    knobs += " --env.taskset.max_nudges 0"
    command = f"fintrading-eval -m local/smollm2 {knobs} --sampling.max-tokens 32 --no-rich --run-name small"
    done = evaluated(programs, command, local.serve("smollm2"), tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = rows(tmp_path / "outputs/small/traces.jsonl")
    assert row["failure"] is None
    assert (row["detail"], row["note"]) == ("brief", local.MODELS["smollm2"].about)
    assert row["tokens_in"] > 0
