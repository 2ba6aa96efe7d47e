"""Boards for the tests of the page: agents whose logs are as long, and as odd, as those of agents that ask a model."""

import random
import re
import zlib
from functools import cache
from itertools import pairwise
from pathlib import Path

from fintrading_gym import leaderboard as board
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Player, Task, Traits, find_player
from fintrading_gym.store import writing

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("analyst", "bull", "bear", "judge", "risk committee")
# What a page must show and never run: markup of its own, the end of its script, and what turns or hides text.
HOSTILE = (
    "<script>document.title = 'owned'</script>",
    "</script><script>document.title = 'owned'</script>",
    "<!-- <script> --><img src=x onerror=\"document.title = 'owned'\">",
    "{{blocks}} ${board} &lt;b&gt; \\u003c \u202eesrever\u202c \u2028 \U0001f4c8",
)


@cache
def _chain():
    """The words of the pages of docs/, and which follow which."""
    words = re.findall(r"\S+", " ".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))))
    after = {}
    for word, following in pairwise(words):
        after.setdefault(word, []).append(following)
    return words, after


def prose(draw, length):
    """So many characters that pack like English about prices: a walk through the words of docs/, and numbers."""
    words, after = _chain()
    said = [draw.choice(words)]
    size = 0
    while size < length:
        jumps = draw.random() < 0.6 or said[-1] not in after  # or it repeats whole lines of the pages
        price = f"{draw.uniform(60, 140):.2f}"
        said.append(price if draw.random() < 0.12 else draw.choice(words if jumps else after[said[-1]]))
        size += len(said[-1]) + 1
    return " ".join(said)[:length]


def packs_to(text):
    """Its size, deflated, as a share."""
    return len(zlib.compress(text.encode(), 9)) / len(text.encode())


class Talker:
    """Asks a model that is not there, a question a stage: momentum, with a reasoned answer of some length."""

    def __init__(self, task, stages, content, reasoning, memories, hostile):
        self.log, self.identity = [], task.identity or "masked"
        self._draw = random.Random(f"{task.cell} {task.persona} {task.seed} {stages}")
        self._told = stages, content, reasoning, memories, hostile
        self._calls = 0

    def __call__(self, observation):
        stages, content, reasoning, memories, hostile = self._told
        calls, research, draw = [], "", self._draw
        up = int(observation["vector"][35] > 0) + int(observation["vector"][36] > 0)
        action = ("sell", "hold", "buy")[up]
        silent = len(self.log) == 7  # on one day it makes no decision
        for k, stage in enumerate(stages):
            last = k == len(stages) - 1
            said = prose(draw, content)
            if last:
                said += "\nI would wait." if silent else f'\n{{"action": "{action}"}}'
            if hostile:
                said = f"{hostile[len(self.log) % len(hostile)]} {said}"
            system = (
                f"You are the {stage} of a committee. Read what is below, and judge it soberly, in a few paragraphs."
            )
            call = {
                "stage": stage,
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": observation["text"] + research},
                ],
                "content": said,
                "outcome": "ok",
                "reasoning": prose(draw, reasoning) if reasoning else None,
                "refusal": None,
                "tool_calls": [],
                "finish_reason": "stop",
                "usage": {"input": 700 + 200 * k, "output": (content + reasoning) // 4, "cached": 0},
                "latency": 2.5,
                "attempts": 1,
                "cost": 0.0004 * (1 + reasoning / 1000),
                "sent": {"temperature": 0.7, "seed": 0, "max_tokens": 1024},
                "cached": False,
            }
            if last:
                reason = "no_object" if silent else ""
                call["verdict"] = {"action": None if silent else action, "reason": reason, "confidence": 0.6}
            calls.append(call)
            research += f"\n\n{stage}:\n{said}"
        self._calls += len(calls)
        entry = {"calls": calls}
        if memories:
            entry["retrieved"] = [
                {"id": n, "layer": "shallow", "score": draw.random(), "text": prose(draw, 200)} for n in range(memories)
            ]
            entry["reflection"] = prose(draw, 300)
        elif len(stages) > 1:
            entry["research"] = {"items": 4, "undated": 1}
        self.log.append(entry)
        return Decision(None, "no_object") if silent else Decision(action)

    @property
    def facts(self):
        return {
            "model": "scripted/prose",
            "note": "words without a meaning",
            "leaks": 0,
            "first_leak": None,
            "calls": self._calls,
            "tokens_in": 900 * self._calls,
            "tokens_out": 300 * self._calls,
            "cost_usd": 0.001 * self._calls,
            "paid_usd": 0.001 * self._calls,
            "cache_hits": 0,
            "prompt_sha256": "0" * 64,
        }


def talker(name, stages=("decision",), content=300, reasoning=0, memories=0, hostile=()):
    """A player whose agents talk so much."""

    def factory(task):
        return Talker(task, stages, content, reasoning, memories, hostile)

    factory.traits = Traits(uses_seed=False)
    return Player(name, factory)


def filled(path, players, tasks):
    """A board of these players, by name or themselves, on these tasks."""
    players = [player if isinstance(player, Player) else find_player(player) for player in players]
    with writing(path, {}) as kept:
        board.fill(kept, board.plan(players, tasks))
    return path


def tasks_of(cells, personas, timesteps=50):
    return [Task(cell, persona, timesteps=timesteps) for cell in cells for persona in personas]
