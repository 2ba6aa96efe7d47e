"""Stored policies: what a file may hold, what it may be played on, and where it is kept."""

import contextlib
import io
import json
import pickle
import re
import tracemalloc
import zipfile
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import getitem

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fintrading_agents.policies import (
    GAME,
    Policy,
    PolicyError,
    cached,
    key,
    load,
    recipe_of,
    refuse_unfit,
    save,
    title,
)
from fintrading_agents.spans import training_days
from fintrading_gym.observations import columns
from fintrading_gym.rollout import Task
from fintrading_gym.windows import Window

COLUMNS = len(columns(7))


SPAN = {"ticker": "TSLA", "first": "2021-01-04", "last": "2022-10-05", "sha256": "0" * 64}


def policy_of(task=None, seed=0, sizes=(COLUMNS, 8, 3)):
    """A policy of random weights for a task."""
    task = task or Task()
    generator = np.random.default_rng(seed)
    layers = tuple(
        (generator.normal(size=(out, into)).astype(np.float32), generator.normal(size=out).astype(np.float32))
        for into, out in pairwise(sizes)
    )
    recipe = recipe_of("ppo", {"activation": "tanh"}, training_days(task.window), task, seed)
    return Policy(recipe, layers, {"numpy": "2"})


# -------------------------------------------------------------------------------------------- the network


def test_the_highest_output_is_the_decision():
    still = np.zeros((3, COLUMNS), np.float32)
    for action in range(3):
        policy = replace(policy_of(), layers=((still, np.eye(3, dtype=np.float32)[action]),))
        assert policy({"vector": np.ones(COLUMNS, np.float32)}) == action


def test_a_batch_of_rows_gives_what_each_row_gives():
    rows = np.random.default_rng(1).normal(size=(5, COLUMNS)).astype(np.float32)
    policy = policy_of()
    np.testing.assert_allclose(policy.outputs(rows), [policy.outputs(row) for row in rows], rtol=1e-5)


def test_a_policy_tells_a_board_what_it_learned_from():
    policy = policy_of(Task("spy_bear_2022"), seed=4)
    assert policy.facts["trained_until"] == policy.last_day == "2021-12-31"
    assert policy.facts["trained_on"] == "SPY:2021-01-04:2021-12-31"
    assert policy.facts["trained_on_sha256"] == Task("spy_bear_2022").window.load().sha256
    assert policy.facts["policy_seed"] == 4
    assert policy.facts["selected_until"] is None
    policy.recipe["hyperparameters"]["selected_until"] = "2021-12-31"
    assert policy.facts["selected_until"] == "2021-12-31"


# ---------------------------------------------------------------------------------------------- the files


def test_a_policy_comes_back_as_it_was_and_twice_as_the_same_bytes(tmp_path):
    policy = policy_of()
    save(policy, tmp_path / "new" / "a.npz")
    save(policy, tmp_path / "b.npz")
    back = load(tmp_path / "new" / "a.npz")
    assert (back.recipe, back.libraries) == (policy.recipe, policy.libraries)
    for (weights, bias), (expected, shift) in zip(back.layers, policy.layers, strict=True):
        np.testing.assert_array_equal(weights, expected)
        np.testing.assert_array_equal(bias, shift)
    assert (tmp_path / "new" / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"new", "b.npz"}  # nothing half-written is left


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return open, (str(self.canary), "w")


def _pickle(path, trap):
    path.write_bytes(pickle.dumps(trap))


def _sb3_zip(path, trap):
    # As Stable-Baselines3 writes it: `data` is JSON with base64 of cloudpickle, the weights are torch's pickles.
    import base64

    coded = base64.b64encode(pickle.dumps(trap)).decode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {":type:": "trap", ":serialized:": coded}}))
        archive.writestr("policy.pth", pickle.dumps(trap))
        archive.writestr("_stable_baselines3_version", "2.9.2")


def _npz_of_objects(path, trap):
    with path.open("wb") as file:
        np.savez(file, recipe=np.array([trap], object), libraries=np.frombuffer(b"{}", np.uint8))


def _npz_with_an_object_layer(path, trap):
    policy = policy_of()
    told = {
        "recipe": np.frombuffer(json.dumps(policy.recipe).encode(), np.uint8),
        "libraries": np.frombuffer(b"{}", np.uint8),
    }
    told["bias_0"] = np.zeros(3, np.float32)
    with path.open("wb") as file:
        np.savez(file, **told, weights_0=np.array([[trap] * COLUMNS] * 3, object))


def _npz_with_a_pickle_inside(path, trap):
    save(policy_of(), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more", pickle.dumps(trap))


PLANTED = [_pickle, _sb3_zip, _npz_of_objects, _npz_with_an_object_layer, _npz_with_a_pickle_inside]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_file_is_refused_and_nothing_of_it_runs(plant, tmp_path):
    canary, path = tmp_path / "canary", tmp_path / "policy.npz"
    plant(path, Trap(canary))
    with pytest.raises(PolicyError, match="is no stored policy") as fault:
        load(path)
    assert "\n" not in str(fault.value)
    assert not canary.exists()


def test_the_trap_of_these_tests_does_spring(tmp_path):
    pickle.loads(pickle.dumps(Trap(tmp_path / "canary"))).close()
    assert (tmp_path / "canary").exists()


def damage(data, content):
    """Some bytes changed, mostly those of a header, and perhaps the end cut off."""
    content = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        reach = data.draw(st.sampled_from([len(content), min(128, len(content))]))
        content[data.draw(st.integers(0, reach - 1))] = data.draw(st.integers(0, 255))
    return bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)


@settings(max_examples=300)
@given(st.data(), st.booleans())
def test_a_damaged_file_is_refused_or_still_a_policy_and_raises_nothing_else(tmp_path_factory, data, inside):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    save(policy_of(sizes=(COLUMNS, 3)), path)
    if inside:  # an array, in an archive whose checksums are right
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = data.draw(st.sampled_from(sorted(members)))
        members[name] = damage(data, members[name])
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        path.write_bytes(damage(data, path.read_bytes()))
    try:
        policy = load(path)
    except PolicyError:
        return
    assert policy({"vector": np.zeros(COLUMNS, np.float32)}) in (0, 1, 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"days": []}, "does not tell"),
        ({"days": [{"ticker": "TSLA", "first": "2021-01-04", "last": "soon", "sha256": ""}]}, "does not tell"),
        ({"days": [{"ticker": "TSLA"}]}, "KeyError"),
        ({"game": {}}, "KeyError|does not tell"),
        ({"game": {"hold": "keep", "cost_bps": 0.0, "fill": "close", "lookback": 3}}, "27 inputs"),
        ({"game": {"hold": "keep", "cost_bps": 0.0, "fill": "close", "lookback": 10**9}}, "does not tell"),
        ({"hyperparameters": {"activation": "tan"}}, "Did you mean 'tanh'"),
        ({"seed": "0"}, "does not tell"),
        ({"algorithm": None}, "does not tell"),
        ({"algorithm": "../../ppo"}, "does not tell"),
        ({"algorithm": "\x1b[31mppo"}, "does not tell"),
        ({"algorithm": "ppo\n"}, "does not tell"),
        ({"version": "1\n2"}, "does not tell"),
        ({"seed": -1}, "does not tell"),
        ({"seed": True}, "does not tell"),
        ({"seed": 10**30}, "does not tell"),
        ({"days": "TSLA"}, "TypeError"),
        ({"days": [SPAN | {"ticker": "\x1b[2J"}]}, "does not tell"),
        ({"days": [SPAN | {"ticker": "T" * 21}]}, "does not tell"),
        ({"days": [SPAN | {"first": "\x1b[2J"}]}, "does not tell"),
        ({"days": [SPAN | {"sha256": "[red]"}]}, "does not tell"),
        ({"game": {"hold": "kept", "cost_bps": 0.0, "fill": "close", "lookback": 7}}, "does not tell"),
        ({"game": {"hold": "keep", "cost_bps": "0", "fill": "close", "lookback": 7}}, "does not tell"),
        ({"game": {"hold": "keep", "cost_bps": float("nan"), "fill": "close", "lookback": 7}}, "does not tell"),
        ({"hyperparameters": {"activation": "tanh", "selected_until": "soon"}}, "does not tell"),
        ({"hyperparameters": ["tanh"]}, "have no names"),
    ],
)
def test_a_file_whose_recipe_is_none_is_refused(changes, words, tmp_path):
    policy = policy_of()
    save(replace(policy, recipe=policy.recipe | changes), tmp_path / "policy.npz")
    with pytest.raises(PolicyError, match=words):
        load(tmp_path / "policy.npz")


def places(told, *way):
    """The ways to every value within JSON."""
    yield way
    inside = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for name, value in inside:
        yield from places(value, *way, name)


@pytest.mark.parametrize("value", [None, True, 5, -1.5, "x", "\n", [], ["x"], {}, {"x": 5}], ids=repr)
def test_whatever_stands_anywhere_in_a_recipe_a_file_is_refused_or_a_policy_that_tells_of_itself(value, tmp_path):
    recipe = policy_of(sizes=(COLUMNS, 3)).recipe
    for way in list(places(recipe)):
        changed = {"recipe": json.loads(json.dumps(recipe))}
        *into, last = ("recipe", *way)
        reduce(getitem, into, changed)[last] = value
        save(replace(policy_of(sizes=(COLUMNS, 3)), recipe=changed["recipe"]), tmp_path / "policy.npz")
        try:
            policy = load(tmp_path / "policy.npz")
        except PolicyError:
            continue
        assert policy({"vector": np.zeros(COLUMNS, np.float32)}) in (0, 1, 2)
        assert all(str(fact).isprintable() for fact in policy.facts.values())
        assert re.fullmatch(r"[\w.-]+", title(policy.recipe))
        with contextlib.suppress(PolicyError):
            refuse_unfit(policy.recipe, Task())


@pytest.mark.parametrize("sizes", [(COLUMNS, 8, 4), (COLUMNS + 1, 3), (COLUMNS,)])
def test_a_network_of_another_shape_is_refused(sizes, tmp_path):
    save(policy_of(sizes=sizes), tmp_path / "policy.npz")
    with pytest.raises(PolicyError, match=r"layer|outputs"):
        load(tmp_path / "policy.npz")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(value, tmp_path):
    policy = policy_of()
    policy.layers[0][0][0, 0] = value
    save(policy, tmp_path / "policy.npz")
    with pytest.raises(PolicyError, match="not finite"):
        load(tmp_path / "policy.npz")


def test_a_file_that_unpacks_to_gigabytes_is_refused_unread(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights_0.npy", bytes(1 << 27))
    with pytest.raises(PolicyError, match="unpacks to more than"):
        load(tmp_path / "bomb.npz")


def header(shape, descr="<f4", fortran=False):
    """The bytes that numpy.savez writes before an array of this shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header((1 << 35,)), "needs 137438953472 bytes, and 0 are there"),
        (header((1 << 20, 1 << 20, 1 << 20)), "needs 4611686018427387904 bytes"),
        (header((64, 47)) + bytes(8), "needs 12032 bytes, and 8 are there"),
        (header((2,)) + bytes(400), "needs 8 bytes, and 400 are there"),
        (header((1 << 40,), "|V0"), "ValueError"),
        (header((3,), "|O") + bytes(24), "holds objects"),
        (header((3,), [("a", "<f4", (1 << 24,))]) + bytes(24), "needs|ValueError"),
        (b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\xff", "another format"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "ValueError"),
        (b"\x93NUMPY\x01\x00\x00\x20" + b"a " + b"x" * 8190, "Cannot parse header"),
    ],
)
def test_a_header_that_asks_for_more_than_is_there_is_refused_before_memory_is_asked_for(content, words, tmp_path):
    save(policy_of(), tmp_path / "policy.npz")
    with zipfile.ZipFile(tmp_path / "policy.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | {"weights_0.npy": content}
    with zipfile.ZipFile(tmp_path / "crafted.npz", "w") as archive:
        for name, inside in members.items():
            archive.writestr(name, inside)
    tracemalloc.start()
    try:
        with pytest.raises(PolicyError, match=words) as fault:
            load(tmp_path / "crafted.npz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 500


def test_a_large_file_is_refused_unread(tmp_path):
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        archive.writestr("recipe.npy", b"")
    with (tmp_path / "large.npz").open("r+b") as file:  # an archive may begin anywhere
        content = file.read()
        file.seek(1 << 26)
        file.write(content)
    with pytest.raises(PolicyError, match="has more than 67108864 bytes"):
        load(tmp_path / "large.npz")


def test_a_missing_file_and_a_folder_are_told(tmp_path):
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(PolicyError, match=r"There is no file .*fintrading train"):
            load(path)


# ------------------------------------------------------------------------------------ what may be played


@pytest.mark.parametrize(
    ("trained_for", "played"),
    [
        ("tsla_main", "tsla_main"),
        ("tsla_main", "nvda_bull_2023"),
        ("spy_bear_2022", "tsla_ablation"),
        ("tsla_main", "TSLA:2022-10-06:2022-11-01"),
    ],
)
def test_a_window_after_the_training_days_is_played(trained_for, played):
    refuse_unfit(policy_of(Task(trained_for)).recipe, Task(played))


@pytest.mark.parametrize(
    ("trained_for", "played"),
    [
        ("tsla_main", "tsla_ablation"),  # the same ticker, days that it learned from
        ("tsla_main", "spy_bear_2022"),  # another ticker's: markets share their days
        ("tsla_main", "TSLA:2022-10-05:2022-11-01"),  # one day
        ("nvda_bull_2023", "TSLA:2021-01-04:2021-03-01"),
        ("tsla_main", "COIN:2021-04-14:2021-06-01"),
    ],
)
def test_a_window_that_begins_before_the_training_days_are_over_is_refused(trained_for, played):
    with pytest.raises(PolicyError, match=r"was trained on days up to .*fintrading train ppo --cell") as fault:
        refuse_unfit(policy_of(Task(trained_for)).recipe, Task(played))
    assert "\n" not in str(fault.value)


def test_a_day_of_another_ticker_counts_as_a_training_day():
    early, late = training_days(Task("spy_bear_2022").window), Window("NVDA", "2021-01-04", "2022-03-31")
    recipe = recipe_of("ppo", {"activation": "tanh"}, (*early, late), Task())
    with pytest.raises(PolicyError, match="up to 2022-03-31"):
        refuse_unfit(recipe, Task("spy_bear_2022"))


def test_a_window_on_a_day_without_trading_begins_with_the_next_one():
    sunday = "2022-10-02"  # trained until Friday 2022-09-30
    policy = policy_of(Task(f"TSLA:{sunday}:2022-11-01"))
    assert policy.last_day == "2022-09-30"
    refuse_unfit(policy.recipe, Task(f"TSLA:{sunday}:2022-11-01"))


@pytest.mark.parametrize(
    ("played", "allowed"),
    [
        ("TSLA:2021-06-01:2021-08-31", False),  # before all of them
        ("TSLA:2021-11-01:2022-06-30", False),
        ("NVDA:2021-12-31:2022-06-30", False),  # the last of them, of another ticker
        ("TSLA:2022-01-03:2022-06-30", True),
    ],
)
def test_a_window_that_begins_before_the_days_of_the_selection_are_over_is_refused(played, allowed):
    recipe = policy_of(Task("TSLA:2021-05-03:2021-08-31")).recipe
    assert recipe["days"][0]["last"] < "2021-06-01"
    refuse_unfit(recipe, Task(played))  # hyperparameters that do not tell
    recipe["hyperparameters"]["selected_until"] = "2021-12-31"
    if allowed:
        refuse_unfit(recipe, Task(played))
        return
    with pytest.raises(PolicyError, match=r"were chosen on days up to 2021-12-31; window .* begins on 2021-") as fault:
        refuse_unfit(recipe, Task(played))
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    "change", [{"hold": "flat"}, {"cost_bps": 5.0}, {"fill": "next_open"}, {"lookback": 5}], ids=lambda c: next(iter(c))
)
def test_another_game_than_the_one_it_was_trained_on_is_refused(change):
    (name,) = change
    assert name in GAME
    with pytest.raises(PolicyError, match=f"was trained with {name}="):
        refuse_unfit(policy_of().recipe, Task(**change))


# -------------------------------------------------------------------------------------------- the cache


def test_whatever_decides_the_weights_changes_the_key():
    recipe = policy_of().recipe
    assert key(recipe) == key(json.loads(json.dumps(recipe)))
    others = [
        policy_of(seed=1).recipe,
        policy_of(Task("spy_bear_2022")).recipe,
        policy_of(Task(cost_bps=1.0)).recipe,
        policy_of(Task(lookback=5), sizes=(COLUMNS, 3)).recipe,
        recipe | {"version": "0.0.1"},
        recipe | {"algorithm": "a2c"},
        recipe | {"hyperparameters": {"activation": "relu"}},
        recipe | {"days": [recipe["days"][0] | {"sha256": "0" * 64}]},
    ]
    assert len({key(recipe), *map(key, others)}) == 1 + len(others)
    assert title(recipe) == "ppo-TSLA-until-2022-10-05-seed0"
    assert title(recipe | {"algorithm": "../a\x1b[2J"}) == ".._a__2J-TSLA-until-2022-10-05-seed0"
    days = recipe["days"][0] | {"ticker": "../BRK/B"}
    assert title(recipe | {"days": [days]}) == "ppo-.._BRK_B-until-2022-10-05-seed0"


def test_the_cache_lies_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path))
    recipe = policy_of().recipe
    assert cached(recipe) == tmp_path / "policies" / f"{title(recipe)}-{key(recipe)}.npz"


def test_numbers_of_numpy_and_tuples_make_the_same_recipe_as_pythons():
    ours, numpys = (
        recipe_of("ppo", chosen, training_days(task.window), task, task.seed)
        for task, chosen in (
            (Task(seed=3, timesteps=20, cost_bps=5.0, lookback=7), {"steps": 512, "net_arch": [8, 8], "rate": 0.25}),
            (
                Task(seed=np.int64(3), timesteps=np.int32(20), cost_bps=5, lookback=np.int16(7)),
                {"steps": np.int64(512), "net_arch": (np.int8(8), 8), "rate": np.float32(0.25)},
            ),
        )
    )
    assert ours == numpys
    assert key(ours) == key(numpys)
    assert title(ours) == title(numpys)


def test_a_hyperparameter_that_no_file_can_hold_is_told():
    with pytest.raises(TypeError, match=r"<function .* cannot be a hyperparameter"):
        recipe_of("ppo", {"learning_rate": lambda done: 1e-3}, training_days(Task().window), Task())
