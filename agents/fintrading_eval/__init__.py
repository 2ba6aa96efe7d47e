"""The game as a `verifiers` environment: `vf-eval fintrading-eval`.

`vf-eval` finds the taskset, the environment and the harness by the names below. They are loaded when they are asked
for, since `fintrading import` reads traces where verifiers is not installed.
"""

from typing import Any

__all__ = ["ChatHarness", "FintradingEnv", "FintradingTaskset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fintrading_eval import env

    return getattr(env, name)
