"""The door to a model: what an agent sends comes through without names and dates, and what is masked as it is."""

import ast
import asyncio
from pathlib import Path

import pytest

import fintrading_agents
from fintrading_agents.guard import Guarded, texts_changed
from fintrading_agents.llm import PROMPTS, llm, system_prompt
from fintrading_agents.models import Scripted
from fintrading_agents.neutering import EntityMap, for_task
from fintrading_agents.transcript import Transcript
from fintrading_gym.masking import IDENTITIES, mask
from fintrading_gym.observations import DETAILS, PERSONAS
from fintrading_gym.rollout import Player, Task
from fintrading_gym.windows import CELLS

BUY = '{"action": "buy"}'


def sent(task, agent_of=llm, **options):
    """All messages that reach the model in an episode, and the episode."""
    seen = []
    model = Scripted(lambda messages: seen.append(messages) or BUY)
    return seen, Player("llm:given", agent_of, model, options).play(task)


def test_nothing_an_agent_sends_reaches_the_model_with_names_or_dates():
    class Careless:
        """An agent that quotes the news as it is."""

        def __init__(self, task, model):
            self._model = Guarded(model, for_task(task, "masked"))

        def __call__(self, observation):
            news = "Tesla (TSLA) closed at $223.07 on 2022-10-07, said Elon Musk. " + observation["text"]
            parts = [{"type": "text", "text": news}, {"type": "json", "TSLA": ["2022-10-07", 223.07]}]
            asyncio.run(self._model.complete([{"role": "user", "content": parts}]))
            return 2

    (messages,), episode = sent(Task(timesteps=1, identity="masked"), Careless)
    assert episode.failure is None
    text = repr(messages)
    assert "Company-001 (Company-001) closed at $" in text
    assert "Date-0008, said Person-" in text
    assert "'Company-001': ['Date-0008', 223.07]" in text
    assert "TSLA" not in text
    assert "2022-10" not in text
    assert "$223.07" not in text


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("persona", PERSONAS)
@pytest.mark.parametrize("cell", CELLS)
def test_the_masked_view_and_our_own_prompts_pass_as_they_are(cell, persona, detail):
    task = Task(cell, persona, timesteps=60, detail=detail, identity="masked", cost_bps=5.0, hold="flat")
    env = task.make(observation="text")
    guarded = Guarded(Scripted([]), for_task(task, "masked"))
    texts = [env.reset()[0]] + [env.step(action)[0] for action in [2, 0, 1] * 20]
    for text in [system_prompt(task), *texts]:
        messages = [{"role": "user", "content": text}]
        assert guarded.told(messages) == messages
    assert for_task(task, "masked").find(repr(PROMPTS)) == []


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_seats_log_holds_what_was_sent(identity):
    seen, episode = sent(Task(timesteps=3, identity=identity), context="full")
    assert [call["messages"] for day in episode.log for call in day["calls"]] == seen
    assert ("TSLA" in repr(seen)) is (identity == "real")


def test_the_log_holds_what_was_sent_and_a_price_is_scaled_once():
    seen = []
    said = Transcript(
        Task("tsla_main", identity="masked"), Scripted(lambda messages: seen.append(messages) or "A target of $105.20.")
    )
    scale = mask(Task().window, 7, "masked").scale
    for content, told in (
        ("It closed at $223.07 on 2022-10-07", f"It closed at ${223.07 * scale:.2f} on Date-0008"),
        (
            f"They say ${223.07 * scale:.2f}, I say $105.20, or $200",
            f"They say ${223.07 * scale:.2f}, I say $105.20, or ${200 * scale:.2f}",
        ),
        ("closed at 93.67 (SMA 91.20)", "closed at 93.67 (SMA 91.20)"),  # what code reckons out of a masked view
    ):
        said.new_day()
        asyncio.run(said.ask([{"role": "user", "content": content}]))
        assert seen[-1] == said.log[-1]["calls"][0]["messages"] == [{"role": "user", "content": told}]
        assert said.entity_map.neuter(told, keep_tokens=True) == told
    raw = said.entity_map.neuter("closed at 223.07 (SMA 218.25)")
    assert raw == f"closed at {223.07 * scale:.2f} (SMA {218.25 * scale:.2f})"
    assert said.entity_map.restore(raw) == "closed at 223.07 (SMA 218.25)"
    assert float(said.entity_map.restore("$105.20")[1:]) == pytest.approx(105.20 / scale, abs=0.015 / scale)


def test_tool_calls_and_their_results_pass_the_guard_and_ids_stay():
    call = {"id": "call_2022-10-07", "type": "function"}
    asks = call | {"function": {"name": "news", "arguments": '{"ticker": "TSLA", "until": "2022-10-07"}'}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [asks]},
        {"role": "tool", "tool_call_id": "call_2022-10-07", "content": "Tesla fell"},
        {"role": "assistant", "tool_calls": [], "reasoning_content": "Musk again"},
    ]
    told = Guarded(Scripted([]), EntityMap("TSLA")).told(messages)
    hidden = '{"ticker": "Company-001", "until": "Date-0001"}'
    assert told[0] == {**messages[0], "tool_calls": [asks | {"function": {"name": "news", "arguments": hidden}}]}
    assert told[1] == {**messages[1], "content": "Company-001 fell"}
    assert told[2]["reasoning_content"].startswith("Person-")


def test_no_agent_asks_a_model_but_through_the_guard():
    """Only these files call a model; probes ask about views that are masked already, or name the stock on purpose."""
    root = Path(fintrading_agents.__file__).parent
    doors = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr == "complete"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert {door for door in doors if not door.startswith("models/")} == {
        "guard.py",
        "transcript.py",
        "audit/probes.py",
    }


def test_every_text_of_nested_data_is_changed_keys_too():
    data = {"TSLA": ["Tesla", 3, None, {"on": "2022-10-07"}], "x": (True, "F")}
    neutered = texts_changed(data, EntityMap("TSLA").neuter)
    assert neutered == {"Company-001": ["Company-001", 3, None, {"on": "Date-0001"}], "x": [True, "F"]}
