"""The levels of identity: what each hides, and that nothing but the text changes with them."""

import re
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from conftest import table_of, window_of
from hypothesis import given
from hypothesis import strategies as st

from fintrading_gym import masking
from fintrading_gym.env import FILLS, HOLD_RULES, OBSERVATION, FinMemTradingEnv
from fintrading_gym.masking import IDENTITIES, SCALED
from fintrading_gym.observations import columns
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.windows import CELLS, Window, read_prices

ID = "fintrading_gym:FinMemTrading-v0"
HIDDEN = [identity for identity in IDENTITIES if identity != "real"]
PRICED = ("open", "high", "low", "close")
ROW = re.compile(r"^(Day \d+|\d{4}-\d\d-\d\d) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", re.M)


def play(env, actions, seed=0):
    """Observations, and all else that an episode returns."""
    observation, info = env.reset(seed=seed)
    seen, rest = [observation], [repr(info)]
    over = False
    for action in actions:
        if over:
            break
        observation, reward, _, over, info = env.step(action)
        seen.append(observation)
        rest.append((reward, repr(info)))
    return seen, rest


def bars(text):
    """The table of a text: label -> open, high, low, close, volume."""
    return {label: tuple(map(float, numbers)) for label, *numbers in ROW.findall(text)}


# ------------------------------------------------------------------------------ what stays as it is

games = st.fixed_dictionaries(
    {
        "cell": st.sampled_from(list(CELLS)),
        "hold": st.sampled_from(list(HOLD_RULES)),
        "fill": st.sampled_from(list(FILLS)),
        "cost_bps": st.sampled_from([0.0, 7.5]),
        "start": st.sampled_from(["first", "random"]),
        "lookback": st.integers(1, 12),
    }
)
actions_lists = st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=30)


@given(actions=actions_lists, game=games, seed=st.integers(0, 5), identity=st.sampled_from(HIDDEN))
def test_rewards_positions_and_metrics_are_bit_identical_masked_or_not(actions, game, seed, identity):
    steps = len(actions)
    real, told = play(gym.make(ID, timesteps=steps, observation="both", **game), actions, seed)
    other, told_too = play(gym.make(ID, timesteps=steps, observation="both", identity=identity, **game), actions, seed)
    assert told == told_too  # rewards, and infos with the ledger and the score
    if identity != "coarse":
        assert [o["vector"].tobytes() for o in real] == [o["vector"].tobytes() for o in other]
    after = "your position: "
    for seen, masked in zip(real, other, strict=True):
        tail, masked_tail = (o["text"].partition(after)[2].splitlines() for o in (seen, masked))
        assert (tail == masked_tail) or identity == "coarse"
        assert tail[0] == masked_tail[0]


@pytest.mark.parametrize("observation", OBSERVATION)
def test_a_view_is_the_same_alone_and_beside_the_other(observation):
    for identity in IDENTITIES:
        both, _ = play(gym.make(ID, identity=identity), [2, 0, 1, 1])
        alone, _ = play(gym.make(ID, identity=identity, observation=observation), [2, 0, 1, 1])
        if observation != "both":
            assert [str(o[observation]) for o in both] == [str(o) for o in alone]


# ---------------------------------------------------------------------------------- what is hidden


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("cell", CELLS)
def test_each_level_hides_what_it_says(cell, identity):
    window = CELLS[cell]
    close = {f"{p:.2f}" for p in window.load().close}
    seen, _ = play(gym.make(ID, cell=cell, observation="text", identity=identity, timesteps=None), [2, 0, 1] * 80)
    text = "".join(seen)
    level = list(IDENTITIES).index(identity)
    assert (window.ticker in text) is (level == 0)
    assert (masking.COMPANY in text) is (level > 0)
    assert bool(re.search(r"\d{4}-\d\d-\d\d", text)) is (level < 2)
    rows = [row for view in seen for row in bars(view).values()]
    quoted = np.mean([f"{row[3]:.2f}" in close for row in rows])
    # A rescaled close may be some raw close of the table by chance.
    assert quoted == 1 if level < 3 else quoted < 0.3
    assert any(row[4] > 10_000 for row in rows) is (level < 3)


def test_a_masked_view_by_hand():
    window = window_of([50.0, 40.0, 60.0, 45.0, 55.0, 55.0], skip=2)
    seen, _ = play(gym.make(ID, cell=window, observation="text", identity="masked", lookback=3), [2, 2])
    assert seen[0].startswith("Company-001 at the close of Day 3\n")
    assert bars(seen[0]) == {  # volumes 1000, 1010, 1020
        "Day 1": (100.0, 100.0, 100.0, 100.0, 0.990099),
        "Day 2": (80.0, 80.0, 80.0, 80.0, 1.0),
        "Day 3": (120.0, 120.0, 120.0, 120.0, 1.0099),
    }
    assert list(bars(seen[2])) == ["Day 3", "Day 4", "Day 5"]
    assert bars(seen[2])["Day 5"][3] == 110.0
    assert "3-day momentum: +37.50 %" in seen[2]


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("start", ["first", "random"])
def test_a_bar_reads_the_same_on_every_day_that_shows_it(identity, start):
    env = gym.make(ID, cell="paper_coin", observation="text", identity=identity, start=start)
    for seed in range(3):
        known = {}
        for text in play(env, [0, 2] * 25, seed)[0]:
            for label, row in bars(text).items():
                assert known.setdefault(label, row) == row
        assert len(known) == 57
        if identity in SCALED:
            first = [known[f"Day {k}"] for k in range(1, 8)]
            assert first[0][3] == 100.0
            assert np.median([row[4] for row in first]) == 1.0


@pytest.mark.parametrize("identity", SCALED)
@pytest.mark.parametrize("detail", ["full", "brief"])
def test_a_scaled_view_knows_neither_name_nor_calendar_nor_level(identity, detail):
    window = CELLS["nvda_bull_2023"]
    true = window.load()
    # Another company, in other years, at another level: powers of two, so that no digit moves by rounding.
    far = tuple(str(np.datetime64(day) - np.timedelta64(364 * 30, "D")) for day in true.date)
    factor = 4.0 if identity == "masked" else 1.0
    priced = {name: getattr(true, name) * factor for name in PRICED}
    disguised = replace(true, date=far, sha256=f"{identity} another", volume=true.volume * factor, **priced)
    first, days = window.span()
    other = Window("XYZ", far[first], far[first + days - 1], disguised)
    keywords = {"observation": "text", "identity": identity, "detail": detail, "timesteps": None}
    actions = np.random.default_rng(0).integers(0, 3, 200).tolist()
    assert (
        play(gym.make(ID, cell=window, **keywords), actions)[0]
        == play(gym.make(ID, cell=other, **keywords), actions)[0]
    )


def test_a_coarse_view_is_rounded_in_prices_volumes_and_the_own_return():
    seen, _ = play(gym.make(ID, identity="coarse", timesteps=None), [2, 2, 0] * 40)
    for observation in seen:
        table = np.array(list(bars(observation["text"]).values()))
        steps = np.log(table[:, :4] / 100) / 0.005
        assert np.abs(steps - steps.round()).max() < 0.03  # two decimals are printed
        volumes = np.log(table[:, 4]) / 0.05
        assert np.abs(volumes - volumes.round()).max() < 0.05
        own = float(re.search(r"your return so far: (\S+) %", observation["text"])[1])
        assert own / 0.5 == round(own / 0.5)
        vector = dict(zip(columns(7), observation["vector"].astype(float), strict=True))
        assert vector["cumulative_return"] == pytest.approx(5 * own / 100, abs=1e-6)
        assert vector["open_0"] / 0.05 == pytest.approx(round(vector["open_0"] / 0.05), abs=1e-4)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("identity", HIDDEN)
@pytest.mark.parametrize("cell", ["tsla_main", "nvda_bull_2023"])
def test_no_masked_view_depends_on_later_prices_and_volumes(cell, identity, fill):
    window = CELLS[cell]
    first, days = window.span()
    true = window.load()
    rng = np.random.default_rng(days)
    actions = rng.integers(0, 3, days - 1).tolist()
    keywords = {"identity": identity, "fill": fill, "timesteps": None}
    whole = play(gym.make(ID, cell=window, **keywords), actions)[0]
    for today in (0, 1, 5, 20, days // 2, days - 2):
        later = np.arange(len(true.date)) > first + today
        changed = replace(
            true, sha256=f"{cell} changed after {today}", volume=np.where(later, true.volume * 3 + 17, true.volume),
            **{name: np.where(later, 2.5 * getattr(true, name), getattr(true, name)) for name in PRICED},
        )  # fmt: skip
        other = play(gym.make(ID, cell=replace(window, prices=changed), **keywords), actions)[0]
        for a, b in zip(whole[: today + 1], other, strict=False):
            assert (a["text"], a["vector"].tobytes()) == (b["text"], b["vector"].tobytes())
        assert other[today + 1]["text"] != whole[today + 1]["text"]


# -------------------------------------------------------------------------------------------- edges


def test_volumes_are_shown_as_zero_where_there_is_nothing_to_scale_them_by():
    frame = table_of([10.0, 11.0, 12.0, 13.0])
    frame["volume"] = [0, 0, 5_000_000, 0]
    prices = read_prices(frame)
    env = gym.make(ID, cell=Window("IDX", prices.date[1], prices.date[-1], prices), identity="masked")
    seen, _ = play(env, [2, 2])
    assert [row[4] for row in bars(seen[-1]["text"]).values()] == [0.0] * 4
    frame["volume"] = [0, 40, 20, 0]
    prices = read_prices(frame)
    seen, _ = play(gym.make(ID, cell=Window("IDX", prices.date[1], prices.date[-1], prices), identity="coarse"), [2, 2])
    assert [row[4] for row in bars(seen[-1]["text"]).values()] == pytest.approx([0, 1, 0.5, 0], rel=0.05)


def test_a_wrong_level_is_told_with_the_nearest():
    with pytest.raises(ValueError, match=re.escape("No identity 'mask'; there are ['real', 'names'")) as fault:
        FinMemTradingEnv(identity="mask")
    assert "Did you mean 'masked'?" in str(fault.value)


def test_an_environment_has_few_enough_attributes_to_be_quick():
    env = gym.make(ID, identity="masked").unwrapped
    env.reset(seed=0)
    env.step(2)
    assert len(vars(env)) < 30  # from there on an instance no longer shares its class's layout


# --------------------------------------------------------------------------- tasks, rows, the command line


def test_an_agent_sees_as_much_as_it_wishes_unless_the_task_says_otherwise():
    def episode(task, **wishes):
        class Agent:
            def __call__(self, observation):
                seen.append(observation["text"])
                return 1

        seen = []
        for name, wish in wishes.items():
            setattr(Agent, name, wish)
        return Player("mine", lambda task: Agent()).play(task), seen

    task = Task(timesteps=2)
    for its, wishes, identity in (
        (task, {}, "real"),
        (task, {"identity": "masked"}, "masked"),
        (task, {"identity": None, "detail": "brief"}, "real"),
        (replace(task, identity="coarse"), {"identity": "masked"}, "coarse"),
        (replace(task, identity="real"), {"identity": "masked"}, "real"),
    ):
        played, seen = episode(its, **wishes)
        assert played.identity == identity
        assert ("TSLA" in seen[0]) is (identity == "real")
        assert ("volume" in seen[0]) is ("detail" not in wishes)


def test_a_model_is_not_told_whom_it_trades_unless_the_task_says_so():
    for identity, level in ((None, "masked"), *((name, name) for name in IDENTITIES)):
        task = Task("nvda_bull_2023", timesteps=3, identity=identity)
        episode = find_player("llm:scripted/momentum").play(task)
        prompts = repr([call["messages"] for day in episode.log for call in day["calls"]])
        assert episode.identity == level
        assert ("NVDA" in prompts) is (level == "real")
        assert ("2023-01" in prompts) is (level in masking.DATED)


def test_levels_have_the_names_that_papers_on_guards_give_them_too():
    for alias, level in masking.ALIASES.items():
        assert gym.make(ID, identity=alias).unwrapped.sight.identity == level
        assert Task(identity=alias) == Task(identity=level)
        episode = find_player("llm:scripted/momentum").play(Task(timesteps=1, identity=alias))
        assert episode.identity == level  # as every row says it
        assert gym.make_vec(ID, 2, identity=alias).games[0].sight.identity == level
