"""What a run will cost, told before it: every agent that asks a model is counted, and nothing is asked."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
from stub_endpoint import Stub, says

from fintrading_agents.costs import CHARACTERS, LONG, costs
from fintrading_agents.llm import llm, system_prompt
from fintrading_gym.costs import NOTHING, Costs, costs_of, expected
from fintrading_gym.rollout import Player, Task, find_player, load, registered

TASK = Task("tsla_main", timesteps=6)
PRICES = '["openai/m"]\ninput = 2.0\noutput = 10.0\n'
ASKING = [name for name, point in registered().items() if hasattr(load(point), "calls_per_episode")]


@pytest.fixture
def player(tmp_path):
    """`llm:openai/m` with a price and options."""
    (tmp_path / "prices.toml").write_text(PRICES)

    def made(**options):
        return replace(find_player("llm:openai/m"), options={"prices": str(tmp_path / "prices.toml"), **options})

    return made


def test_calls_lie_between_one_a_day_and_all_nudges_a_day(player):
    assert costs(player(), TASK).calls == (6, 18)
    assert costs(player(max_nudges=0), TASK).calls == (6, 6)


def test_tokens_are_those_of_what_is_sent(player):
    env = TASK.make(observation="text", identity="masked", detail="full")
    shown, over = [env.reset(seed=0)[0]], False
    while not over:
        observation, _, _, over, _ = env.step(2)
        shown.append(observation)
    sent = sum(len(view) + len(system_prompt(TASK)) for view in shown[:-1])
    told = costs(player(max_nudges=0), TASK)
    assert told.tokens_in[0] == pytest.approx(sent / CHARACTERS[0], abs=6)
    assert sent / CHARACTERS[1] < told.tokens_in[1] < sent / CHARACTERS[1] * 1.25  # the schema, and what frames it
    assert told.tokens_out == (6 * 5, 6 * 4096)
    assert costs(player(max_tokens=100, max_nudges=0), TASK).tokens_out == (30, 600)


def test_a_longer_context_costs_more_and_local_models_are_shown_less(player):
    last, full = (costs(player(context=context), TASK).tokens_in for context in ("last", "full"))
    assert full[0] > 2.5 * last[0]
    local = costs(find_player("llm:local/smollm2"), TASK)
    assert local.tokens_in[1] < last[1] * 0.8
    assert (local.usd, local.tokens_out) == ((0, 0), (30, 18 * 64))


def test_money_is_tokens_times_prices_and_an_unknown_price_is_not_nothing(player):
    told = costs(player(), TASK)
    for bound in (0, 1):
        assert told.usd[bound] == pytest.approx((2 * told.tokens_in[bound] + 10 * told.tokens_out[bound]) / 1e6)
    assert costs(find_player("llm:openai/nobody-knows"), TASK).usd is None


def test_a_long_reply_that_is_sent_again_counts_with_its_length(player):
    def quoting(task, model, **options):
        seat, replies = llm(task, model, **options), []

        class Quoting:
            detail, identity = seat.detail, seat.identity

            def __call__(self, observation):
                decision = seat({"text": "".join(replies)})
                replies.append(LONG)
                return decision

            @property
            def facts(self):
                return seat.facts

        return Quoting()

    quoting.shared, quoting.traits = llm.shared, llm.traits
    one = replace(player(max_tokens=1000, max_nudges=0), factory=quoting)
    sent = [costs(one, replace(TASK, timesteps=days)).tokens_in[1] for days in (1, 2)]
    assert sent[1] - 2 * sent[0] == pytest.approx(1000 * CHARACTERS[0] / CHARACTERS[1], abs=10)


def test_an_endpoint_takes_no_more_than_was_told(player):
    """What a real run used lies within the bounds; of the tokens the stub tells, as many as characters make."""

    def answer(body):
        sent = sum(len(message["content"]) for message in body["messages"])
        said = '{"action": "sell"}' if len(body["messages"][-1]["content"]) % 3 else "Well."
        return says(said, usage=(round(sent / 2.7), 8, 0))

    pytest.importorskip("openai")
    with Stub(answer) as stub:
        one = player(base_url=stub.url, structured="none", cache="off")
        told = costs_of(one, TASK)
        assert stub.requests == []
        facts = one.play(TASK).facts
    used = (facts["calls"], facts["tokens_in"], facts["tokens_out"], facts["cost_usd"])
    assert facts["format_nudges"] > 0
    for (least, most), number in zip((told.calls, told.tokens_in, told.tokens_out, told.usd), used, strict=True):
        assert least <= number <= most


@pytest.mark.parametrize("name", ASKING)
def test_the_calls_that_an_agent_counts_are_those_it_makes(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path))
    for task in (TASK, replace(TASK, timesteps=9)):
        one = find_player(f"{name}:openai/m")
        assert costs_of(one, task).calls[0] == one.factory.calls_per_episode(task, {})


def test_an_agent_that_cannot_play_with_what_stands_in_for_a_model_is_unknown(player):
    def breaks(task, model):
        raise RuntimeError

    breaks.shared, breaks.traits = llm.shared, llm.traits
    assert costs(replace(player(), factory=breaks), TASK) == Costs()


def test_who_asks_no_model_costs_nothing_and_who_only_counts_calls_is_unknown_beyond_them():
    assert costs_of(find_player("flat"), TASK) == NOTHING
    assert costs_of(find_player("llm:scripted/momentum"), TASK) == NOTHING

    def asking(task):
        return lambda observation: 2

    asking.calls_per_episode = lambda task, options: task.decisions * options.get("k", 3)
    assert costs_of(Player("asking", asking), TASK) == Costs((18, float("inf")))


@pytest.mark.parametrize(
    ("name", "told"),
    [("llm", "llm needs a model"), ("llm:opnai/x", "Did you mean 'openai'"), ("llm:openai/", "names no model")],
)
def test_a_model_that_there_is_not_is_told_as_in_a_run(name, told):
    with pytest.raises(ValueError, match=told):
        costs_of(find_player(name), TASK)


def test_the_sum_over_agents_counts_every_episode_and_plays_a_task_once(player, monkeypatch):
    played = []
    monkeypatch.setattr(Player, "play", lambda self, *words, play=Player.play: played.append(1) or play(self, *words))
    one = player(max_nudges=1)
    episodes = [
        (one, replace(TASK, seed=seed, persona=persona)) for seed in range(3) for persona in ("adaptive", "risk_averse")
    ]
    flat = find_player("flat")
    told, rule = expected([*episodes, (flat, TASK)], {one.label: 0.5}, at_once=4)
    assert (told.agent, told.episodes, told.decisions) == (one.label, 6, 36)
    assert told.costs.calls == (36, 72)
    assert told.seconds == (36 * 0.5 / 4, 72 * 0.5 / 4)
    assert (rule.agent, rule.costs, rule.seconds) == ("flat", NOTHING, (0, 0))
    assert len(played) == 4
    assert expected(episodes, {}, 4)[0].seconds is None


@pytest.mark.skipif(not find_spec("genai_prices"), reason="needs the extra cost")
def test_a_published_price_is_found():
    assert costs(find_player("llm:openai/gpt-4o-mini"), TASK).usd[0] > 0
