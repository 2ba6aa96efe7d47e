"""The bundled small model, spoken to as any OpenAI-compatible endpoint: `serve()` gives its address.

The server (llama.cpp's, out of `xllamacpp`) is a child process that lives as long as this one, and not a part
of it. In one process it could not be ended: its destructor waits for ever while a request is under way, as
it is after Ctrl-C, and without the destructor the process crashes as it exits.
"""

import atexit
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fintrading_agents.models.weights import MODELS, LocalModel, WeightsError, add, find, present
from fintrading_gym.errors import MissingExtra, lookup

__all__ = ["MODELS", "SETTINGS", "LocalModel", "WeightsError", "add", "find", "present", "serve"]

SETTINGS: dict[str, Any] = {  # what suits a model this small
    "detail": "brief",  # of the text view: every digit is a token, so the table of prices is 350 of them
    "temperature": 0,
    "max_tokens": 64,  # a decision takes 8, under a JSON schema up to 33: it fills in white space
    # A decision and nothing else, in its shortest form: free to write what it likes, the model writes no JSON.
    "grammar": r'root ::= "{\"action\": \"" ("buy" | "sell" | "hold") "\"}"',
}

_SERVER = Path(__file__).with_name("server.py")
_lock = threading.Lock()
_addresses: dict[str, str] = {}  # of the servers that this process started, or the one it was forked from


def serve(name: str = "smollm2") -> str:
    """The base URL, ending in `/v1`, of a server of this model on loopback; the first call starts it.

    It ends with this process, however that ends. A forked child gets its parent's address; a spawned one
    starts a server of its own.

    Args:
        name: a key of `MODELS`.

    Raises:
        UnknownName: no such model.
        MissingExtra: the runtime is not installed.
        WeightsError: the weights are not on this machine, or damaged.
        RuntimeError: the server did not start.
    """
    with _lock:
        if name not in _addresses:
            model = lookup("local model", name, MODELS)
            if importlib.util.find_spec("xllamacpp") is None:
                raise MissingExtra(f"The local model {name!r}", "local")
            _addresses[name] = _start(find(name), name, model.context) + "/v1"
        return _addresses[name]


def _start(weights: Path, name: str, context: int) -> str:
    # Without "passive", threads that wait spin, and on a busy machine the model falls to one token a second.
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    words = [sys.executable, "-P", str(_SERVER), str(weights), name, str(context)]
    server = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server.stdout as printed:
        address = printed.readline().strip()
    atexit.register(_end, server)  # of a process that is killed, the pipe to its server breaks, which ends it too
    if not address:
        raise RuntimeError(f"The server of {name!r} ended with exit code {server.wait()} before it could answer")
    return address


def _end(server: subprocess.Popen[str]) -> None:
    server.kill()  # it has nothing to save
    server.communicate()
