"""The audit: it convicts a model that trades from memory, clears one that reads, and its numbers are what they say."""

import hashlib
import json
import math
import re
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import pairwise, product

import numpy as np
import pytest
from conftest import fintrading
from typer.testing import CliRunner

from fintrading_agents.audit import Plan, audit, card, probes
from fintrading_agents.audit.gap import stretches
from fintrading_agents.audit.intervals import against_chance, is_above_chance, mean, share
from fintrading_agents.audit.invariance import WORLDS, _confidence_invariance, _divergence, invariance, most_ids, points
from fintrading_agents.llm import llm
from fintrading_agents.models import ModelFailure, Reply, Scripted, open_model, weights
from fintrading_gym.cli import app
from fintrading_gym.errors import RunStopped
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Player, Traits, find_player
from fintrading_gym.windows import EVALUATION, TICKERS, bundled, find_window

PLAN = Plan(views=40, recalls=40, points=8, stretches=4, steps=20)


@cache
def audited(name):
    return audit(find_player(name), PLAN)


# ---------------------------------------------------------------------------- the two models it must tell apart


def test_it_convicts_a_model_that_knows_prices_by_heart_and_the_mask_disarms_it():
    told = audited("llm:scripted/recogniser")
    assert told["verdict"] == "memory"
    score, honest = told["gap"]["score"], audited("llm:scripted/momentum")["gap"]["score"]
    assert score["difference"]["high"] < 0
    assert score["hidden"]["mean"] == honest["hidden"]["mean"]  # masked, it is as good as what it falls back on
    assert score["real"]["mean"] > honest["real"]["mean"] + 0.1
    shown, hidden = told["identification"]["names+dates"], told["identification"]["masked"]
    assert shown["by_ticker"]["TSLA"] == [4, 4]
    assert hidden["by_ticker"]["TSLA"] == [0, 4]
    assert is_above_chance(shown["date"])
    assert not is_above_chance(hidden["ticker"])
    assert not is_above_chance(hidden["date"])
    assert is_above_chance(told["recall"]["close_1pct"])
    least, most = re.search(r"(\d\.\d{3}) to (\d\.\d{3}) may be memory", told["sentence"]).groups()
    assert float(least) == pytest.approx(-score["difference"]["high"], abs=6e-4)
    assert float(most) == pytest.approx(-score["difference"]["low"], abs=6e-4)
    assert told["sentence"] in card(told)


def test_it_clears_a_model_that_reads_only_the_returns():
    told = audited("llm:scripted/momentum")
    assert told["verdict"] == "none found"
    assert told["gap"]["score"]["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 16}
    assert "nothing need be memory" in told["sentence"]
    for level in ("real", "masked"):
        assert told["invariance"][level]["mirror"]["pc"]["mean"] == 0  # what it reads is turned round, and so is it
        assert told["invariance"][level]["renamed"]["pc"]["mean"] == 1
        assert told["invariance"][level]["mirror"]["ids"]["mean"] == pytest.approx(most_ids(1))
    assert told["recall"]["unanswered"] == 40
    assert "To 120 of 120 questions it gave no answer that could be read." in card(told)


def test_a_model_that_trades_on_the_date_alone_ignores_the_market_and_is_convicted():
    days = {ticker: bundled(ticker) for ticker in TICKERS}

    def diary(messages):
        """Knows what followed each day, by ticker and date, and looks at no price."""
        found = re.search(r"^(\w+) at the close of (\S+)", str(messages[-1]["content"]))
        if not found or found[1] not in days or found[2] not in days[found[1]].date[:-1]:
            return '{"action": "sell"}'
        day = days[found[1]].date.index(found[2])
        rises = days[found[1]].close[day + 1] > days[found[1]].close[day]
        return json.dumps({"action": "buy" if rises else "sell"})

    told = audit(Player("llm:diary", llm, Scripted(diary)), PLAN)
    assert told["verdict"] == "memory"
    assert told["gap"]["score"]["real"]["mean"] > 0.9
    pc = {world: numbers["pc"]["mean"] for world, numbers in told["invariance"]["real"].items()}
    assert (pc["mirror"], pc["shuffled"], pc["reversed"]) == (1, 1, 1)
    assert pc["renamed"] < 1


def by_path(messages):
    """Knows the ten stocks by three returns, which no mask hides, and trades on the next day; it names nothing."""
    shown = re.findall(r"(?:momentum|return): (\S+) %", str(messages[-1]["content"]))
    known = tomorrows().get(tuple(shown))
    return json.dumps({"action": "sell" if known is None else known})


@cache
def tomorrows():
    """Three returns as the views print them: which way the stock then went."""
    told = {}
    for ticker in TICKERS:
        close = bundled(ticker).close
        for t in range(20, len(close) - 1):
            printed = tuple(f"{round(100 * (close[t] / close[t - back] - 1), 2) + 0.0:+.2f}" for back in (3, 5, 20))
            told[printed] = "buy" if close[t + 1] > close[t] else "sell"
    return told


def names_by_path(messages):
    """The same, and it says which stock it sees."""
    shown = str(messages[-1]["content"])
    if '"ticker"' in str(messages[0]["content"]) and "3-day" in shown:
        returns = tuple(re.findall(r"(?:momentum|return): (\S+) %", shown))
        place = next((ticker for ticker in TICKERS if returns in paths()[ticker]), "AAPL")
        return json.dumps({"ticker": place, "sector": "x", "date": "2020-01-01"})
    return '{"action": "buy"}'


@cache
def paths():
    told = {}
    for ticker in TICKERS:
        close = bundled(ticker).close
        told[ticker] = {
            tuple(f"{round(100 * (close[t] / close[t - back] - 1), 2) + 0.0:+.2f}" for back in (3, 5, 20))
            for t in range(20, len(close))
        }
    return told


@pytest.mark.parametrize(
    ("script", "sign"),
    [
        (by_path, r"foresees what happened \(\+0.\d\d\) better than what did not"),
        (names_by_path, r"names the ticker \(\d+% right, \d+% by chance"),
    ],
)
def test_a_model_that_knows_the_path_behind_the_mask_is_not_cleared(script, sign):
    told = audit(Player("llm:given", llm, Scripted(script)), PLAN)
    assert told["gap"]["score"]["difference"]["mean"] == 0  # the mask costs it nothing
    assert told["verdict"] == "undecided"
    assert re.search(f"with identity=masked it still {sign}", told["sentence"])


@pytest.mark.parametrize("reply", ["", "I would rather buy."])
def test_a_model_that_decides_nothing_is_not_cleared(reply):
    few = Plan(("tsla_main",), views=2, recalls=2, points=1, stretches=2, steps=2)
    told = audit(Player("llm:given", llm, Scripted(lambda messages: reply)), few)
    assert told["verdict"] == "undecided"
    assert "it took only 0% of its decisions itself" in told["sentence"]


def test_a_player_without_a_model_is_audited_without_questions():
    told = audited("mean_reversion")
    assert told["identification"] is told["recall"] is told["model"] is None
    assert told["verdict"] == "none found"
    assert "It asks no model" in card(told)


def test_the_whole_audit_is_json_and_tells_how_it_was_made():
    told = audited("llm:scripted/momentum")
    assert json.loads(json.dumps(told, allow_nan=False)) == json.loads(json.dumps(told))
    assert told["plan"]["views"] == 40
    assert told["plan"]["samples"] == 1  # a script draws nothing
    assert set(told["data_sha256"]) == set(EVALUATION)
    assert len(told["prompts_sha256"]) == 64


def test_at_a_cutoff_the_gap_is_split():
    told = audit(find_player("llm:scripted/recogniser"), Plan(views=1, recalls=1, points=1, cutoff="2022-12-01"))
    before, after = told["cutoff"]["before"], told["cutoff"]["after"]
    windows = stretches(PLAN.cells, 4, 20)
    assert before["stretches"] == sum(window.last <= "2022-12-01" for window in windows)
    assert after["stretches"] == sum(window.first > "2022-12-01" for window in windows)
    assert before["stretches"] > 0 < after["stretches"]
    assert "| after the cutoff 2022-12-01 |" in card(told)
    told["cutoff"] = {"after": audit(find_player("flat"), Plan(points=1, cutoff="2024-01-01"))["cutoff"]["after"]}
    assert "There is no stretch after the cutoff" in card(told)


# --------------------------------------------------------------------------------------------- the numbers


def test_means_and_shares_have_the_intervals_of_the_textbook():
    assert mean([1.0, 2.0, 3.0]) == pytest.approx(
        {"mean": 2.0, "low": 2 - 4.303 / 3**0.5, "high": 2 + 4.303 / 3**0.5, "n": 3}
    )
    assert mean([5.0]) == {"mean": 5.0, "low": None, "high": None, "n": 1}
    assert mean([])["mean"] is None
    assert mean([0.0, 1.0], (0.0, 1.0)) == {"mean": 0.5, "low": 0.0, "high": 1.0, "n": 2}
    many = mean(list(np.arange(101.0)))
    assert (many["high"] - 50) / (np.arange(101).std(ddof=1) / 101**0.5) == pytest.approx(1.984, abs=1e-3)
    wilson = share(8, 10)
    assert (wilson["low"], wilson["high"]) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert share(0, 0)["share"] is None


def test_chance_is_what_the_same_answers_would_score_elsewhere():
    always = against_chance(["a"] * 4, ["a", "a", "b", "b"], lambda x, y: x == y)
    assert always["share"] == always["chance"] == 0.5
    assert not is_above_chance(always)
    truths = [str(k) for k in range(20)]
    knows = against_chance(truths, truths, lambda x, y: x == y)
    assert (knows["share"], knows["chance"]) == (1, 0)
    assert is_above_chance(knows)
    assert not is_above_chance(against_chance(["a"], ["a"], lambda x, y: x == y))
    assert against_chance([], [], lambda x, y: True)["p"] is None


def test_who_guesses_is_above_chance_as_seldom_as_is_said():
    rng = np.random.default_rng(0)
    for n, kinds in ((8, 10), (40, 10), (40, 3)):
        guesses = [rng.integers(0, kinds, n).tolist() for _ in range(150)]
        truths = [(np.arange(n) % kinds).tolist() for _ in guesses]
        above = [
            is_above_chance(against_chance(a, b, lambda x, y: x == y)) for a, b in zip(guesses, truths, strict=True)
        ]
        assert np.mean(above) < 0.06


@pytest.mark.parametrize("form", [probes.IDENTIFIED, probes.RECALLED])
def test_the_forms_of_answers_are_as_strict_as_endpoints_ask_and_the_grammar_gives_such(form):
    assert form.schema["additionalProperties"] is False
    assert form.schema["required"] == list(form.schema["properties"])
    assert all(
        f'{{"{name}' in form.grammar.replace("\\", "") or f', "{name}' in form.grammar.replace("\\", "")
        for name in form.schema["required"]
    )


def test_an_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [(told := mean(rng.normal(size=8).tolist()))["low"] < 0 < told["high"] for _ in range(2000)]
    assert 0.93 < np.mean(covered) < 0.97


def decisions(*told):
    return [Decision(action, confidence=confidence) for action, confidence in told]


def test_ids_is_finite_grows_with_the_difference_and_counts_stated_confidences():
    same = decisions(("buy", None))
    assert _divergence(same, same) == 0
    assert _divergence(same, decisions(("sell", None))) == pytest.approx(math.log(3) / 3)
    assert _divergence(same * 5, decisions(("sell", None)) * 5) > _divergence(same, decisions(("sell", None)))
    unsure = _divergence(decisions(("buy", 0.4)), decisions(("sell", 0.4)))
    assert 0 < unsure < _divergence(decisions(("buy", 0.9)), decisions(("sell", 0.9))) < most_ids(1)
    assert _divergence([None], same) > 0


def test_ci_is_taken_where_the_decision_stays_and_a_confidence_is_stated():
    pairs = [
        (decisions(("buy", 0.9)), decisions(("buy", 0.7))),
        (decisions(("buy", 0.9)), decisions(("sell", 0.1))),
        (decisions(("buy", 0.5)), decisions(("buy", None))),
        ([None], decisions(("buy", 0.5))),
    ]
    assert _confidence_invariance(pairs)["mean"] == pytest.approx(0.8)
    assert _confidence_invariance(pairs[1:]) is None


def test_without_stated_confidences_ci_is_taken_from_how_many_samples_agree():
    three, two = decisions(*[("buy", None)] * 3), decisions(("buy", None), ("sell", None), ("buy", None))
    sell = decisions(*[("sell", None)] * 3)
    assert _confidence_invariance([(three, two), (three, three), (three, sell)])["mean"] == pytest.approx(
        (2 / 3 + 1) / 2
    )
    assert _confidence_invariance([([None, None, Decision("buy")], three)]) is None  # mostly it decided nothing
    assert _confidence_invariance([(three, sell)]) is None
    assert (
        _confidence_invariance([(decisions(("buy", None)), decisions(("buy", None)))]) is None
    )  # one sample tells nothing
    stated = decisions(("buy", 0.5), ("sell", 0.9), ("buy", 0.7))
    assert _confidence_invariance([(stated, three)])["mean"] == pytest.approx(0.6)


def test_every_sample_and_world_is_played_on_the_same_days():
    seen = []

    def factory(task):
        seen.append((task.window.first, task.seed, task.identity, task.window.load().sha256))
        return lambda observation: 2

    def play(player, tasks):
        return [player.play(task) for task in tasks]

    player = Player("mine", factory)
    asked = points(("tsla_main", "nvda_bull_2023"), 3, seed=1)
    told = invariance(player, asked, 2, "masked", play)
    days = {first for first, *_ in seen}
    assert len(seen) == 6 * 3 * 2
    assert len(days) == 3
    assert {(seed, identity) for _, seed, identity, _ in seen} == {(seed, "masked") for seed in range(4)}
    assert len([seed for _, seed, _, _ in seen if seed > 1]) == 3 * 2  # the real world again, with other draws
    assert len({sha for *_, sha in seen}) == 2 * 4  # the real table serves "renamed" too
    assert list(told["worlds"]) == ["again", *WORLDS]
    assert {numbers["pc"]["mean"] for numbers in told["worlds"].values()} == {1.0}
    assert {numbers["ci"]["mean"] for numbers in told["worlds"].values()} == {1.0}
    assert told["foresight"]["real"]["mean"] == 0
    assert set(invariance(player, asked, 1, "masked", play)["worlds"]) == set(WORLDS)


def noisy(messages, sample):
    """Buys or sells by the prompt, more surely the larger its momentum; each sample draws anew."""
    text = str(messages[-1]["content"])
    momentum = float(re.search(r"3-day momentum: ([+-]\S+) %", text)[1])
    draw = int(hashlib.sha256(f"{text} {sample}".encode()).hexdigest()[:8], 16) / 2**32
    return json.dumps({"action": "buy" if draw < 1 / (1 + math.exp(-momentum)) else "sell"})


class Drawing(Scripted):
    """A model that draws, by the number of the sample, as an endpoint does by its seed."""

    async def complete(self, messages, *, sample=0, form=None):
        if form and form.name != "decision":
            return Reply("{}", "ok")
        return Reply(noisy(messages, sample), "ok", cost=0.0)


def test_an_llm_that_draws_is_sampled_end_to_end_and_has_a_ci():
    """The seat states no confidence: repeated samples of one prompt give it."""
    told = audit(
        Player("llm:drawing", llm, Drawing([], "openai/drawing")),
        Plan(views=2, recalls=2, points=12, samples=4, stretches=1, steps=2),
    )
    assert told["plan"]["samples"] == 4
    for level in ("real", "masked"):
        worlds = told["invariance"][level]
        assert 0.5 < worlds["again"]["pc"]["mean"] < 1
        assert 0.5 < worlds["again"]["ci"]["mean"] < 1
        assert worlds["mirror"]["pc"]["mean"] < worlds["again"]["pc"]["mean"]
        assert worlds["mirror"]["ids"]["mean"] > worlds["again"]["ids"]["mean"] > 0
    assert told["invariance"]["masked"]["renamed"]["ci"]["mean"] == 1  # the same prompt, and the same draws
    page = card(told)
    assert "| again | masked |" in page
    assert "so much luck alone changes" in page


@pytest.mark.parametrize(("options", "samples"), [({}, 1), ({"temperature": 1.0}, 3)])
def test_a_model_on_this_machine_is_sampled_where_it_draws(options, samples):
    def seat(task, model, **options):
        return llm(task, model, **options)

    @contextmanager
    def shared(name, **options):
        yield Drawing([], name) if isinstance(name, str) else name, {}  # a model's settings end with the opening

    seat.traits, seat.shared = llm.traits, shared
    player = Player("llm:local/x", seat, "local/x", options)
    told = audit(player, Plan(("tsla_main",), views=1, recalls=1, points=2, stretches=1, steps=1))
    assert told["plan"]["samples"] == samples
    assert ("again" in told["invariance"]["masked"]) is (samples > 1)


def test_a_drawing_agent_is_sampled_and_another_is_not():
    def drawing(task):
        return lambda observation: task.seed % 3

    told = audit(Player("drawing", drawing), Plan(points=2, samples=3, stretches=1, seeds=2))
    assert (told["plan"]["samples"], told["plan"]["seeds"]) == (3, 2)
    drawing.traits = Traits(uses_seed=False)
    assert audit(Player("drawing", drawing), Plan(points=2, stretches=1))["plan"]["samples"] == 1


def test_stretches_lie_in_their_cell_and_do_not_overlap():
    for cell, count in product(EVALUATION, (1, 3, 99)):
        window = find_window(cell)
        found = stretches((cell,), count, 20)
        assert len(found) == min(count, (window.span()[1] - 1) // 20)
        assert all(stretch.span()[1] == 21 for stretch in found)
        assert all(a.last <= b.first for a, b in pairwise(found))
        assert window.first <= found[0].first
        assert found[-1].last <= window.last
    assert stretches(("tsla_main",), 3, 500)[0].span()[1] == 127


# ---------------------------------------------------------------------------------------------- the probes


def test_the_views_that_are_to_be_named_hide_what_they_should():
    asked, seen = probes.places(10, seed=0), []
    model = Scripted(lambda messages: seen.append(messages[1]["content"]) or "{}")
    for identity in ("names+dates", "masked", "coarse"):
        probes.identification(model, asked, identity, "full")
    assert {place.ticker for place in asked} == set(TICKERS)
    assert len(seen) == 30
    for text, place in zip(seen, asked * 3, strict=True):
        assert place.ticker not in text
        assert place.date not in text
        assert "Company-001 at the close of Day 7" in text
    assert [
        f"{bundled(place.ticker).close[place.row]:.2f}" in text for text, place in zip(seen, asked, strict=False)
    ] == [True] * 10


@pytest.mark.parametrize(
    ("reply", "ticker", "sector", "date"),
    [
        ('{"ticker": "goog", "sector": "Communication Services", "date": "2022-03-30"}', 1, 1, 1),
        ('I think {"ticker": "GOOGL", "sector": "Internet", "date": "2022-04-13"}.', 1, 1, 1),
        ('```json\n{"Ticker": "Alphabet", "sector": "Tech", "date": "2022-04-14"}\n```', 1, 0, 0),
        ('{"ticker": "MSFT", "sector": null, "date": "March 2022"}', 0, 0, 0),
        ("no idea", 0, 0, 0),
        ('{"ticker": ', 0, 0, 0),
    ],
)
def test_answers_are_read_and_judged(monkeypatch, reply, ticker, sector, date):
    row = bundled("GOOG").date.index("2022-03-14")
    place = probes.Place("GOOG", "2022-03-14", row)
    told = probes.identification(Scripted(lambda messages: reply), [place], "masked", "full")
    assert [told[what]["share"] for what in ("ticker", "sector", "date")] == [ticker, sector, date]
    assert told["unanswered"] == ("{" not in reply or "}" not in reply)


def test_a_close_is_known_within_a_per_cent_or_three_and_as_newspapers_had_it():
    row = bundled("MSFT").date.index("2021-06-01")
    place = probes.Place("MSFT", "2021-06-01", row)
    printed = 247.40  # before dividends were taken off
    assert bundled("MSFT").close[row] < 0.99 * printed
    for factor, one, three in ((1.0, 1, 1), (1.009, 1, 1), (0.98, 0, 1), (1.04, 0, 0)):
        answer = json.dumps({"close": printed * factor, "next": "down"})
        told = probes.recall(Scripted(lambda messages, answer=answer: answer), [place])
        assert (told["close_1pct"]["share"], told["close_3pct"]["share"]) == (one, three)
        assert told["direction"]["share"] == (bundled("MSFT").close[row + 1] < bundled("MSFT").close[row])
    assert probes.recall(Scripted(['{"close": "many"}']), [place])["close_3pct"]["share"] == 0


# ------------------------------------------------------------------------------------ failures, command line


def test_a_failed_episode_ends_the_audit():
    def broken(task):
        def decide(observation):
            raise OSError("gone")

        return decide

    with pytest.raises(RunStopped, match="5 of 5 episodes failed, the first with: day 1: OSError: gone"):
        audit(Player("broken", broken), Plan(points=1, samples=1))


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"identity": "real"}, "No identity 'real'"),
        ({"identity": "mask"}, "Did you mean 'masked'?"),
        ({"cutoff": "2023"}, "cutoff='2023' is not a date"),
        ({"views": 0}, "views=0 is not a whole number >= 1"),
    ],
)
def test_a_wrong_plan_is_told_in_one_line(keywords, words):
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        Plan(**keywords)
    assert "\n" not in str(fault.value)


SMALL = ("--views", "10", "--recalls", "5", "--points", "2", "--stretches", "2", "--cells", "tsla_main,tsla_ablation")


def test_the_command_writes_one_json_and_one_card(tmp_path):
    files = ("--json", str(tmp_path / "a.json"), "--card", str(tmp_path / "a.md"))
    done = CliRunner().invoke(app, ["audit", "llm", "--model", "scripted/recogniser", *SMALL, *files])
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "a.json").read_text())
    assert (tmp_path / "a.md").read_text() == card(told)
    assert "Memory audit of llm:scripted/recogniser" in done.output
    assert told["verdict"] == "memory"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("audit", "llm:scripted/recognizer"), "Did you mean 'recogniser'"),
        (("audit", "flat", "--cells", "tsla_man"), "Did you mean 'tsla_main'"),
        (("audit", "flat", "--identity", "mask"), "Did you mean 'masked'"),
        (("audit", "flat", "--temperature", "1"), "--temperature is for players that ask a model"),
        (("audit", "flat", "--points", "0"), "points=0"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(words, told):
    done = fintrading(*words, code=2)
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_model_that_does_not_answer_a_probe_ends_the_audit():
    class Gone(Scripted):
        async def complete(self, messages, *, sample=0, form=None):
            raise ModelFailure("quota")

    with pytest.raises(ModelFailure):
        audit(Player("llm:gone", llm, Gone([])), PLAN)


@pytest.mark.slow
def test_the_small_local_model_can_be_audited():
    if not find_spec("xllamacpp") or not weights.present("smollm2"):
        pytest.skip("needs the extra local, and the weights")
    plan = Plan(("tsla_main",), views=4, recalls=4, points=2, samples=1, stretches=2, steps=3)
    told = audit(find_player("llm:local/smollm2"), plan)
    assert told["model"] == "local/smollm2"
    assert told["gap"]["coverage"]["hidden"]["mean"] == 1
    assert "Of its score of" in card(told)
    with open_model("local/smollm2") as model:
        assert probes.identification(model, probes.places(4, 0), "masked", "brief")["ticker"]["n"] == 4
