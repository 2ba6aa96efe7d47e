"""An OpenAI-compatible endpoint on loopback: it answers as it is told, faults included, and remembers who asked what.

In a test: `with Stub(FAULTS["overloaded"], says("hello")) as stub:` answers the first request with the fault and all
later ones with "hello"; `stub.url` goes to the client, and `stub.requests` tells what came. A function from the body
of a request to an answer plays a model. As a program, `python tests/stub_endpoint.py --latency 0.2`, it prints its URL
and serves until it is stopped.
"""

import argparse
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    body: object = None  # str: as it is; else as JSON
    status: int = 200
    headers: dict = field(default_factory=dict)
    delay: float = 0.0  # seconds before the first byte
    manner: str = "whole"  # "cut": half of the promised body, then the end; "reset": the connection is torn down


def says(content, *, finish_reason="stop", usage=(120, 8, 0), delay=0.0, **message):
    """A chat completion; `message` adds to it or overrides it (reasoning_content=..., refusal=..., tool_calls=...)."""
    body = {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
    }
    if usage is not None:
        prompt, completion, cached = usage
        body["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    return Answer(body, delay=delay)


def embeds(*vectors, tokens=7):
    """The vectors of some texts, told in another order than that of the texts."""
    data = [{"object": "embedding", "index": k, "embedding": list(vector)} for k, vector in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Answer({"object": "list", "model": "stub", "data": data[::-1], "usage": usage})


def error(status, message, code=None, param=None, **headers):
    """An error in OpenAI's shape."""
    told = {"message": message, "type": "error", "code": code, "param": param}
    return Answer({"error": told}, status, {name.replace("_", "-"): value for name, value in headers.items()})


FAULTS = {
    # The endpoint cannot answer now.
    "request_timeout": error(408, "took too long"),
    "conflict": error(409, "try again"),
    "too_early": error(425, "too early"),
    "rate_limit": error(429, "slow down", "rate_limit_exceeded"),
    "server_error": error(500, "it broke"),
    "overloaded": error(503, "overloaded"),
    "error_in_200": Answer({"choices": None, "error": {"code": 502, "message": "upstream is down"}}),
    "rate_limit_in_200": Answer({"choices": None, "error": {"code": 429, "message": "upstream is busy"}}),
    "no_choices": Answer({"choices": []}),
    "garbage": Answer('{"choices": [{"message": {"cont', headers={"content-type": "application/json"}),
    "html": Answer("<html><body>Welcome!</body></html>", headers={"content-type": "text/html"}),
    "cut": Answer(says("never whole").body, manner="cut"),
    "reset": Answer(manner="reset"),
    "slow": says("too late", delay=30.0),
    # It will not answer this, however often it is asked.
    "bad_key": error(401, "Incorrect API key provided", "invalid_api_key"),
    "forbidden": error(403, "not for you"),
    "unknown_model": error(404, "The model `stub` does not exist", "model_not_found"),
    "unknown_model_in_400": error(400, "model stub does not exist"),
    "wrong_path": Answer("404 page not found", 404, {"content-type": "text/plain"}),
    "quota": error(429, "You exceeded your current quota, please check your plan", "insufficient_quota"),
    "no_credit": error(402, "Insufficient credits"),
    "context_length": error(400, "maximum context length is 2048 tokens", "context_length_exceeded"),
    "reply_length": error(
        400, "max_tokens is too large: 4096. This model's maximum context length is 2048 tokens", param="max_tokens"
    ),
    "bad_request": error(400, "messages: field required"),
    # It answers, but not with a text one could use.
    "empty": says(""),
    "none": says(None),
    "only_reasoning": says(None, reasoning_content="Let me think about momentum."),
    "length": says('{"action": "b', finish_reason="length"),
    "refusal": says(None, refusal="I cannot help with that."),
    "content_filter": says("", finish_reason="content_filter"),
}


class Stub(ThreadingHTTPServer):
    """The endpoint; a context manager that serves while it is open."""

    daemon_threads = True
    block_on_close = False  # a slow answer must not hold up the test's end
    request_queue_size = 128  # the default of 5 drops connections that come at the same time

    def __init__(self, *script, latency=0.0):
        """Answer with each of `script` in turn, the last one for ever; an entry may be a function of the request."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.latency = list(script) or [says('{"action": "buy"}')], latency
        self.requests = []  # the body of each chat request, with "authorization" beside it
        self.lock = threading.Lock()
        self.in_flight = self.most_in_flight = self.connections = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self):
        # Polled often, or each test would wait half a second for the end.
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *fault):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Clients that hang up are part of the game."""

    def process_request(self, request, client_address):
        with self.lock:
            self.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        super().shutdown_request(request)
        with self.lock:
            self.connections -= 1

    def left(self):
        """Wait until whatever a process that has ended asked is read: nobody else may be connected."""
        with socket.create_connection(self.server_address):  # behind all of its connections
            pass
        time.sleep(0.05)
        while self.connections:
            time.sleep(0.01)

    def answer(self, body):
        with self.lock:
            self.requests.append(body)
            entry = self.script[0] if len(self.script) == 1 else self.script.pop(0)
        return entry(body) if callable(entry) else entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept, as real endpoints do

    def log_message(self, *words):
        pass

    def do_GET(self):
        self._send(Answer({"object": "list", "data": [{"id": "stub", "object": "model"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path not in ("/v1/chat/completions", "/v1/embeddings"):
            return self._send(FAULTS["wrong_path"])
        stub = self.server
        with stub.lock:
            stub.in_flight += 1
            stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
        try:
            answer = stub.answer({**body, "authorization": self.headers["authorization"]})
            time.sleep(stub.latency + answer.delay)
        finally:
            with stub.lock:
                stub.in_flight -= 1
        return self._send(answer)

    def _send(self, answer):
        if answer.manner == "reset":  # closing with linger 0 sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        body = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
        headers = {"content-type": "application/json", "content-length": len(body), **answer.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if answer.manner == "cut":
            body, self.close_connection = body[: len(body) // 2], True
        # One write: headers and body in two would wait for each other (Nagle, delayed acknowledgement).
        self.wfile.write(f"HTTP/1.1 {answer.status} Stub\r\n{head}\r\n".encode() + body)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    flags.add_argument("--content", default='{"action": "buy"}', help="what it says")
    given = flags.parse_args()
    with Stub(says(given.content), latency=given.latency) as served:
        print(served.url, flush=True)
        threading.Event().wait()
