"""`fintrading-eval`: `vf-eval fintrading-eval` with what a run on this machine needs."""

import sys
from importlib.util import find_spec

from fintrading_gym.errors import MissingExtra

# Flags that are read in every spelling: with dashes or underscores, a value after = or a space, a switch as --x, --no-x
# or with true or false. Of each what vf-eval is told: for a value the flag, for a switch on and off; None: nothing,
# since it is so anyway. All others are vf-eval's own to read, or to refuse.
VALUES = {"run-name": "--run.name", "run.name": "--run.name"}
SWITCHES = {
    "serve": ("--serve", None),  # of earlier versions: a server beside the run
    "push": ("--push", "--no-push"),
    "rich": ("--rich", "--no-rich"),
}
SAID = {"true": True, "1": True, "false": False, "0": False}


def main() -> None:
    """Run `vf-eval` on this package; its flags, its output and its exit code."""
    if find_spec("verifiers") is None:
        print(f"fintrading-eval: {MissingExtra('fintrading-eval', 'verifiers')}", file=sys.stderr)
        sys.exit(2)
    from verifiers.v1.cli.eval.main import main as vf_eval

    vf_eval(arguments(sys.argv[1:]))


def arguments(given: list[str]) -> list[str]:
    """The arguments of `vf-eval` for those of `fintrading-eval`: earlier spellings too, and nothing is uploaded."""
    kept: list[str] = []
    left = list(given)
    while left:
        kept += _as_now(left.pop(0), left)
    if not kept:
        return ["--help"]
    if kept[0].startswith("-") and "--env.taskset.id" not in {argument.partition("=")[0] for argument in kept}:
        kept.insert(0, "fintrading-eval")
    if not {"--push", "--no-push"} & set(kept):
        kept.append("--no-push")
    return kept


def _as_now(argument: str, left: list[str]) -> list[str]:
    """What `vf-eval` is told for one argument; a switch takes its value from those that are left."""
    flag, equals, value = argument.partition("=")
    name = flag.removeprefix("--").replace("_", "-") if flag.startswith("--") else ""
    if name in VALUES:
        return [VALUES[name] + equals + value]
    switch = SWITCHES.get(name.removeprefix("no-"))
    if switch is None or (equals and value.lower() not in SAID):
        return [argument]
    said = True
    if equals:
        said = SAID[value.lower()]
    elif left and left[0].lower() in SAID:
        said = SAID[left.pop(0).lower()]
    on, off = switch
    told = on if said != name.startswith("no-") else off
    return [told] if told else []
