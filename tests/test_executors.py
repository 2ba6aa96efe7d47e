"""Episodes played beside the caller's process: the same bytes, whoever dies and whoever stops."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest

from fintrading_agents import rl
from fintrading_gym import executors
from fintrading_gym.errors import MissingExtra, RunStopped
from fintrading_gym.executors import EXECUTORS, PATIENCE, find_executor
from fintrading_gym.leaderboard import plan, run
from fintrading_gym.rollout import Player, Task, Traits, find_player
from fintrading_gym.store import dumps, rows

TASKS = [Task("tsla_main", seed=seed, timesteps=5) for seed in range(2)] + [Task("spy_bear_2022", timesteps=5)]


def places(players, tasks=TASKS, **keywords):
    """What the run of these players gives, by place."""
    return {place: (row, episode) for place, row, episode in run(plan(players, tasks), **keywords)}


def text_of(played):
    """All of rows and episodes, to be compared byte for byte."""
    return [dumps([row, asdict(episode)]) for _, (row, episode) in sorted(played.items())]


# ------------------------------------------------------- agents that other processes find in this module


class Telling:
    """Buys, and tells in which process."""

    def __init__(self, pause=0.0):
        self.facts, self._pause = {"pid": os.getpid()}, pause

    def __call__(self, observation):
        time.sleep(self._pause)
        return 2


def telling(task, pause=0.0):
    return Telling(pause)


telling.traits = Traits(uses_persona=False)


def fragile(task, marker):
    """Kills its process on the third day of a task, unless there is a marker that it did before."""
    days = []

    def decide(observation):
        days.append(observation)
        if len(days) == 3 and task.seed == 1 and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * (len(days) % 2)

    return decide


def deadly(task):
    """Leaves no answer on one of its tasks."""
    if task.cell == "spy_bear_2022":
        os._exit(3)
    return lambda observation: 2


def stopping(task):
    if task.seed == 0:
        raise RunStopped("enough")
    return Telling(pause=4.0)


def contextual(task, argument):
    return Telling()


def _shares(argument):
    return multiprocessing.get_context  # never called: where a player is sent is decided before


contextual.shared = _shares
lambda_of_a_module = lambda task: lambda observation: 1  # noqa: E731


class Locked:
    """A factory that no other process can have."""

    __name__ = "locked"

    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, task):
        return Telling()


TINY = {
    "steps": 512, "envs": 16, "timesteps": 50, "net_arch": [8], "activation": "tanh",
    "learner": {"n_steps": 8, "batch_size": 64},
}  # fmt: skip


def tiny_ppo(task):
    """PPO, trained for a moment; each training is told in the cache folder."""
    train = rl.train

    def told(algorithm, task, **keywords):
        (Path(os.environ["FINTRADING_CACHE"]) / f"trained-{task.cell}-{task.seed}-{os.getpid()}").touch()
        return train(algorithm, task, **keywords)

    with patch.object(rl, "HYPERPARAMETERS", {"ppo": copy.deepcopy(TINY)}), patch.object(rl, "train", told):
        return rl.ppo(task)


tiny_ppo.traits = Traits(uses_persona=False)


# ------------------------------------------------------------------------------------------- what is chosen


def test_one_worker_is_the_callers_process_and_a_board_that_is_short_is_too():
    assert find_executor("processes", workers=1) is None
    assert find_executor("processes", workers=3).after == 0
    with patch.object(executors, "_cores", lambda: 1):
        assert find_executor("processes") is None
    with patch.object(executors, "_cores", lambda: 8):
        chosen = find_executor("processes")
    assert (chosen.after, chosen.opened.args) == (PATIENCE, (8,))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("proceses",), r"No executor 'proceses'; there are \['processes', 'ray'\]. Did you mean 'processes'"),
        (("processes", None, "10.0.0.1:6379"), "--ray-address 10.0.0.1:6379 is for --executor ray"),
        (("ray", 3, "10.0.0.1:6379"), "--workers 3 is for this machine"),
        (
            ("ray", None, "ray://10.0.0.1:10001"),
            "^Nothing is played through ray://10.0.0.1:10001; give HOST:PORT or auto",
        ),
        (("ray", None, "http://10.0.0.1:8265"), "through http://10.0.0.1:8265; .* ray job submit brings the command"),
    ],
)
def test_what_does_not_go_together_is_told_in_one_line(asked, told):
    with pytest.raises(ValueError, match=told) as refused:
        find_executor(*asked)
    assert "\n" not in str(refused.value)


def test_an_address_of_the_environment_is_refused_as_a_given_one(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.1:10001")
    with pytest.raises(ValueError, match=r"through ray://10\.0\.0\.1:10001"):
        find_executor("ray")


def test_where_no_ray_is_the_addresses_that_work_are_told_at_once():
    pytest.importorskip("ray")
    begun = time.monotonic()
    told = r"^No Ray at 127.0.0.1:1: Connection.*; give HOST:PORT or auto on a machine"
    with pytest.raises(ValueError, match=told), find_executor("ray", ray_address="127.0.0.1:1").opened():
        pass
    assert time.monotonic() - begun < 10


def test_an_executor_that_is_not_installed_is_told_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fintrading-gym\[ray\]'"):
        find_executor("ray")


def test_the_page_about_boards_names_every_executor():
    page = (Path(__file__).resolve().parent.parent / "docs/leaderboard.md").read_text()
    assert [name for name in EXECUTORS if f"`--executor {name}`" not in page] == []
    assert f"{PATIENCE:.0f} seconds" in page


def test_who_shares_something_stays_and_who_cannot_be_sent_is_an_error_where_it_must_be(tmp_path):
    takes = find_executor("processes", workers=2).takes
    assert not takes(Player("contextual", contextual, "x"))
    assert not takes(find_player("llm:local/smollm2"))
    assert not takes(Player("locked", Locked()))
    assert takes(Player("lambda", lambda_of_a_module))
    assert all(takes(find_player(name)) for name in ("flat", "linear", "ppo"))
    told = r"^locked cannot be sent to another process \(TypeError: cannot pickle .*\); play it without --executor ray$"
    with pytest.raises(ValueError, match=told):
        executors._sendable(Player("locked", Locked()), must=True)


# ---------------------------------------------------------------------------------- processes of this machine


def test_processes_give_the_same_bytes_as_the_callers_own():
    closure = 2
    names = ["random", "sma_cross", "linear", "oracle", "llm:scripted/momentum"]
    players = [*map(find_player, names), Player("lambda", lambda task: lambda observation: closure)]
    here, days = places(players), []
    there = places(players, elsewhere=find_executor("processes", workers=2), on_day=lambda *day: days.append(day))
    assert text_of(there) == text_of(here)
    assert sorted(place for place, *_ in days) == sorted(5 * list(range(len(here))))  # the bar reaches its end
    assert {agent is None for place, agent, _ in days if place < 4} == {True}
    assert multiprocessing.active_children() == []


def test_a_long_board_is_given_away_in_the_midst_of_an_episode_and_a_short_one_is_not():
    player = Player("telling", telling)
    tasks = [Task(seed=seed, timesteps=5) for seed in range(3)]
    chosen = replace(find_executor("processes", workers=2), after=60)
    pids = [row["pid"] == os.getpid() for _, (row, _) in sorted(places([player], tasks, elsewhere=chosen).items())]
    assert pids == [True, True, True]
    slow, chosen = Player("slow", slowly), replace(chosen, after=0.3)
    pids = [row["pid"] == os.getpid() for _, (row, _) in sorted(places([slow], tasks, elsewhere=chosen).items())]
    assert pids == [True, False, False]


def slowly(task):
    return Telling(pause=0.1)


def test_a_worker_that_dies_is_replaced_and_its_episode_tried_again_until_it_fails(tmp_path):
    players = [Player("fragile", fragile, str(tmp_path / "died")), find_player("random"), Player("deadly", deadly)]
    played = places(players, elsewhere=find_executor("processes", workers=2))
    failed = {place: played.pop(place)[0] for place in list(played) if played[place][0]["failure"]}
    assert [(row["agent"], row["cell"], row["score"]) for row in failed.values()] == [("deadly", "spy_bear_2022", None)]
    assert next(iter(failed.values()))["failure"] == DIED
    assert (tmp_path / "died").exists()
    kept = [episode for k, episode in enumerate(plan(players, TASKS)) if k not in failed]
    assert text_of(played) == [dumps([row, asdict(episode)]) for _, row, episode in run(kept)]


def test_an_agent_elsewhere_that_stops_the_run_ends_it_without_waiting_for_the_others():
    tasks = [Task(seed=seed) for seed in (0, 1, 2)]
    started = time.monotonic()
    with pytest.raises(RunStopped, match="enough"):
        places([Player("stopping", stopping)], tasks, elsewhere=find_executor("processes", workers=2))
    assert time.monotonic() - started < 150  # one of the others alone takes 200
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ((0, "0.0.1"), "A worker has fintrading-gym .*, and this is 0.0.1: install the same everywhere"),
        ((1, "ab" * 32), "A worker has other prices of SPY:2022-01-03:2022-10-14 than this process"),
        ((3, b"cno_such_module\nagent\n."), "A worker cannot have what flat plays with: ModuleNotFoundError"),
    ],
)
def test_a_worker_that_would_play_something_else_stops_the_run(change, told):
    parts = list(pickle.loads(executors._packed(find_player("flat"), Task("spy_bear_2022"))))
    parts[change[0]] = change[1]
    with pytest.raises(RunStopped, match=told):
        executors._play(pickle.dumps(tuple(parts)))


DIED = "its process died 3 times: it was killed, ran out of memory, or crashed"
SLOW = """
import os, time
from pathlib import Path

def slow(task):
    Path(f"pid-{os.getpid()}").touch()

    def decide(observation):
        time.sleep(0.5)
        return 2
    return decide
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes")
@pytest.mark.parametrize("how", ["Ctrl-C", pytest.param("kill -9", marks=pytest.mark.slow)])
def test_no_process_outlives_the_command(how, tmp_path):
    (tmp_path / "my_agents.py").write_text(SLOW)
    words = ["leaderboard", "--agents", "flat,my_agents:slow", "--cells", "tsla_main", "--workers", "2"]
    command = [str(Path(sys.executable).with_name("fintrading")), *words, "--csv", "rows.csv", "--out", "board.db"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while len(pids := [int(path.name[4:]) for path in tmp_path.glob("pid-*")]) < 2 or not rows(tmp_path / "board.db"):
        assert process.poll() is None
        time.sleep(0.1)
    if how == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=600)
        assert (process.returncode, err.strip()) == (130, "")
        assert len((tmp_path / "rows.csv").read_text().splitlines()) == 2
    else:
        process.kill()
        process.communicate(timeout=600)
    deadline = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if alive(pid)] == []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --------------------------------------------------------------------------------------------------- on Ray


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster whose nodes keep policies in a folder of their own, and its first node."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_AUTH_MODE", "disabled")
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patched.setenv("PYTHONPATH", str(Path(__file__).parent))  # so that workers find this module
        patched.setenv("FINTRADING_CACHE", str(tmp_path_factory.mktemp("of_the_cluster")))
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            yield nodes
        finally:
            nodes.shutdown()


def dwelling(task, told):
    """Tells in a folder on which node it is, waits until two have begun something, and never ends on one of them."""
    days, node = [], None
    folder, _, doomed = told.partition("|")
    if folder:
        import ray

        node = ray.get_runtime_context().get_node_id()
        (Path(folder) / f"{node}-{task.cell}-{task.seed}").touch()
        while len({path.name.partition("-")[0] for path in Path(folder).iterdir()}) < 2:
            time.sleep(0.05)

    def decide(observation):
        if len(days) == 2 and node == doomed:
            time.sleep(1000)
        days.append(observation)
        return len(days) % 3

    return decide


@pytest.mark.slow
def test_a_node_that_is_killed_midway_changes_no_byte(cluster, tmp_path):
    second = cluster.add_node(num_cpus=1)
    tasks = [Task(cell, seed=seed, timesteps=5) for cell in ("tsla_main", "spy_bear_2022") for seed in range(3)]

    def kill():
        while not list(tmp_path.glob(f"{second.node_id}-*")):
            time.sleep(0.05)
        cluster.remove_node(second, allow_graceful=False)

    players = [find_player("random"), Player("dwelling", dwelling, f"{tmp_path}|{second.node_id}")]
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    played = places(players, tasks, elsewhere=find_executor("ray", ray_address=cluster.address))
    killer.join()
    assert len(list(tmp_path.glob(f"{second.node_id}-*"))) == 1
    assert len(list(tmp_path.iterdir())) == len(tasks) + 1  # what the node had begun was begun again
    assert text_of(played) == text_of(places([players[0], Player("dwelling", dwelling, "")], tasks))


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("stable_baselines3"), reason="needs the extra rl")
def test_the_same_board_comes_from_one_process_from_several_and_from_ray_and_no_policy_is_trained_twice(
    cluster, tmp_path, monkeypatch
):
    cells = ["tsla_ablation", "paper_tsla_ablation"]  # begin on the same day: one policy a seed
    tasks = [Task(cell, seed=seed, timesteps=5) for seed in range(2) for cell in cells]  # and at the same time
    players = [*map(find_player, ("random", "linear", "llm:scripted/momentum")), Player("tiny_ppo", tiny_ppo)]
    of_the_cluster = os.environ["FINTRADING_CACHE"]
    boards = {}
    for name, chosen in {
        "one": find_executor("processes", workers=1),
        "two": find_executor("processes", workers=2),
        "ray": find_executor("ray", ray_address=cluster.address),
    }.items():
        cache = Path(of_the_cluster if name == "ray" else tmp_path / name)
        cache.mkdir(exist_ok=True)
        monkeypatch.setenv("FINTRADING_CACHE", str(cache))
        boards[name] = text_of(places(players, tasks, elsewhere=chosen))
        assert sorted(path.name.split("-")[2] for path in cache.glob("trained-*")) == ["0", "1"]
    assert boards["one"] == boards["two"] == boards["ray"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "one/policies").glob("*.npz")} == {
        path.name: path.read_bytes() for path in Path(of_the_cluster, "policies").glob("*.npz")
    }


@pytest.mark.slow
def test_an_episode_whose_worker_always_dies_fails_on_ray_too(cluster):
    players = [Player("deadly", deadly), find_player("flat")]
    played = places(players, TASKS[2:], elsewhere=find_executor("ray", ray_address=cluster.address))
    assert [played[place][0]["failure"] for place in range(2)] == [DIED, None]
