"""`fintrading-eval`: `vf-eval fintrading-eval` with what a run on this machine needs."""

import sys
from importlib.util import find_spec

from fintrading_gym.errors import MissingExtra

# Flags of earlier versions of vf-eval, and what says the same now; None: it is so anyway.
RENAMED = {"--no-serve": None, "--run-name": "--run.name"}


def main() -> None:
    """Run `vf-eval` on this package; its flags, its output and its exit code."""
    if find_spec("verifiers") is None:
        print(f"fintrading-eval: {MissingExtra('fintrading-eval', 'verifiers')}", file=sys.stderr)
        sys.exit(2)
    from verifiers.v1.cli.eval.main import main as vf_eval

    vf_eval(arguments(sys.argv[1:]))


def arguments(given: list[str]) -> list[str]:
    """The arguments of `vf-eval` for those of `fintrading-eval`: earlier spellings too, and nothing is uploaded."""
    kept = []
    for argument in given:
        flag, equals, value = argument.partition("=")
        now = RENAMED.get(flag, flag)
        if now is not None:
            kept.append(now + equals + value)
    if not kept:
        return ["--help"]
    if kept[0].startswith("-") and "--env.taskset.id" not in {argument.partition("=")[0] for argument in kept}:
        kept.insert(0, "fintrading-eval")
    if not {"--push", "--no-push"} & set(kept):
        kept.append("--no-push")
    return kept
