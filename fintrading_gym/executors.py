"""Where episodes that compute are played beside the caller's process: in processes of this machine, or on Ray.

Both have one shape: a context that gives `submit`, which takes an episode and returns the future of its row.
"""

import importlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any

import cloudpickle

from fintrading_gym import __version__
from fintrading_gym.errors import MissingExtra, RunStopped, lookup, one_line
from fintrading_gym.leaderboard import Elsewhere, Played, as_row, played
from fintrading_gym.ledger import Ledger
from fintrading_gym.rollout import FAULTS, Episode, Player, Task

PROCESSES, RAY = EXECUTORS = ("processes", "ray")
TRIES = 3  # of an episode whose process dies
PATIENCE = 5.0  # seconds: a process takes one to start, so a board that is over sooner is played without
IN_FLIGHT = 256  # episodes given to Ray at a time: more than a cluster has cores, so that one that can grow does
ADDRESSES = (
    "give HOST:PORT or auto on a machine of the cluster; from elsewhere, ray job submit brings the command there"
)
POLL = 0.5  # seconds between two looks at whether Ray's answer is still wanted

Submit = Callable[[Player, Task], Future[Played]]
STOPPED = "the run was stopped"


def find_executor(name: str, workers: int | None = None, ray_address: str | None = None) -> Elsewhere | None:
    """The executor that a user names; None: the caller's process is enough.

    Args:
        name: of EXECUTORS.
        workers: processes, on this machine; None: as many as it has cores, where they pay.
        ray_address: of a cluster that this machine is of, HOST:PORT or auto; None: `RAY_ADDRESS`, else Ray is started
            on this machine.

    Raises:
        MissingExtra: Ray is not installed.
        ValueError: these do not go together, or there is no such executor.
    """
    lookup("executor", name, dict.fromkeys(EXECUTORS))
    if name == RAY:
        if "://" in _address(ray_address):
            # Of Ray Client, whose server did not start 2 of 5 times (2.60), and whose runs end with its connection; or
            # of a cluster's jobs, which RAY_ADDRESS may name, too.
            raise ValueError(f"Nothing is played through {_address(ray_address)}; {ADDRESSES}")
        if workers and _address(ray_address) != "local":
            raise ValueError(f"--workers {workers} is for this machine; a cluster at an address has its own")
        _ray()
        return Elsewhere(partial(on_ray, workers, ray_address), partial(_sendable, must=True))
    if ray_address:
        raise ValueError(f"--ray-address {ray_address} is for --executor ray")
    count = workers or _cores()
    return Elsewhere(partial(processes, count), _sendable, 0.0 if workers else PATIENCE) if count > 1 else None


# -------------------------------------------------------------------------------- processes of this machine


@contextmanager
def processes(workers: int) -> Iterator[Submit]:
    """So many processes, each in a pool of its own: whose process dies is known, and the other episodes go on."""
    own, lock, stopped = threading.local(), threading.Lock(), threading.Event()
    pools: list[ProcessPoolExecutor] = []

    def start(job: bytes) -> Future[Played]:
        with lock:
            if stopped.is_set():
                raise RunStopped(STOPPED)
            if not hasattr(own, "pool"):
                own.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)
                pools.append(own.pool)
                _block_interrupts()
            future: Future[Played] = own.pool.submit(_play, job)
            return future

    def attempt(job: bytes) -> Played | None:
        for _ in range(TRIES):
            try:
                return start(job).result()
            except BrokenProcessPool:
                del own.pool
                if stopped.is_set():  # it was we who killed it
                    raise RunStopped(STOPPED) from None
        return None

    def stop() -> None:
        with lock:
            stopped.set()
            for pool in pools:  # kill_workers() from Python 3.14 on; not to be waited for, be it in the midst of a day
                for process in list((pool._processes or {}).values()):
                    process.kill()

    try:
        with _submitting(workers, attempt, stop) as submit:
            yield submit
    finally:
        for pool in pools:
            pool.shutdown()


def _begin() -> None:
    """In a process that was just started: it ends with its parent, however that ends, and not by Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"  # of torch, should an agent import it; there is a process for each core
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)

    def follow() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


# --------------------------------------------------------------------------------------------------- on Ray


@contextmanager
def on_ray(workers: int | None = None, address: str | None = None) -> Iterator[Submit]:
    """Tasks of Ray, which tries them again where a process or a machine dies."""
    ray, stopped = _ray(), threading.Event()
    ours = not ray.is_initialized()
    if ours:
        quiet: dict[str, Any] = {"include_dashboard": False} if _address(address) == "local" else {}
        quiet |= {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            _reach(_address(address))
            ray.init(_address(address), num_cpus=workers, **quiet)
        except (OSError, RuntimeError, ValueError) as fault:
            raise ValueError(f"No Ray at {_address(address)}: {one_line(fault)}; {ADDRESSES}") from fault
    task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_play)
    errors = ray.exceptions
    died = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)

    def attempt(job: bytes) -> Played | None:
        if stopped.is_set():
            raise RunStopped(STOPPED)
        answer = task.remote(job)
        while not ray.wait([answer], timeout=POLL)[0]:
            if stopped.is_set():
                ray.cancel(answer, force=True)
                raise RunStopped(STOPPED)
        try:
            result: Played = ray.get(answer)
        except errors.RayTaskError as fault:
            raise fault.cause from None
        except died:
            return None
        except errors.RayError as fault:
            raise RunStopped(f"Ray gives up: {one_line(fault)}") from fault
        return result

    try:
        with _submitting(IN_FLIGHT, attempt, stopped.set) as submit:
            yield submit
    finally:
        if ours:
            ray.shutdown()


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as fault:
        raise MissingExtra("--executor ray", "ray") from fault


def _reach(address: str) -> None:
    """Raise OSError where nobody listens; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=5).close()


def _address(told: str | None) -> str:
    return told or os.environ.get("RAY_ADDRESS") or "local"


# ---------------------------------------------------------------------------------------- what both stand on


@contextmanager
def _submitting(count: int, attempt: Callable[[bytes], Played | None], stop: Callable[[], None]) -> Iterator[Submit]:
    """`submit`, for as long as the block lasts: threads that each wait for one attempt, None where all tries died."""

    def play(player: Player, task: Task) -> Played:
        if (answer := attempt(_packed(player, task))) is not None:
            return answer
        told = f"its process died {TRIES} times: it was killed, ran out of memory, or crashed"
        failed = Episode(Ledger(), (), None, told)
        return as_row(player, task, failed), failed

    with ThreadPoolExecutor(count) as threads:
        try:
            yield lambda player, task: threads.submit(play, player, task)
        finally:
            stop()


def _block_interrupts() -> None:
    """In a thread: what it starts inherits this, and is not hit by Ctrl-C before it can ignore it itself."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _packed(player: Player, task: Task) -> bytes:
    """An episode as it is sent, and what must be the same where it is played."""
    data: bytes = cloudpickle.dumps((player, task))
    return pickle.dumps((__version__, task.window.load().sha256, player.name, data))


def _play(job: bytes) -> Played:
    """In a worker: play what was packed.

    Raises:
        RunStopped: it cannot be played here, or would not be the same.
    """
    there, sha256, name, data = pickle.loads(job)
    if there != __version__:
        raise RunStopped(f"A worker has fintrading-gym {__version__}, and this is {there}: install the same everywhere")
    try:
        player, task = pickle.loads(data)
        prices = task.window.load()
    except FAULTS as fault:  # a module runs as it is imported, a table is read as it is wanted
        raise RunStopped(f"A worker cannot have what {name} plays with: {one_line(fault)}") from fault
    if prices.sha256 != sha256:
        raise RunStopped(f"A worker has other prices of {task.window} than this process")
    return played(player, task)


def _sendable(player: Player, must: bool = False) -> bool:
    """Whether a player can go to another process; one whose episodes share something stays where it is."""
    if hasattr(player.factory, "shared"):
        return False
    try:
        cloudpickle.dumps(player)
    except FAULTS as fault:
        if must:
            told = f"{player.name} cannot be sent to another process ({one_line(fault)})"
            raise ValueError(f"{told}; play it without --executor ray") from fault
        return False
    return True


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
