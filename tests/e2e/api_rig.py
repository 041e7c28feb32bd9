"""One gateway and one worker, started apart, for tests of the API itself: sockets by hand, events, metrics.

Deadlines end a hung test; nothing waits for a time to pass.
"""
import json
import os
import re
import signal
import socket
import time

import harness
from harness import BUILD, LIMIT_S, TINY, Process, wait_until

GATEWAY = os.path.join(BUILD, "bin", "sluice-gateway")
WORKER = os.path.join(BUILD, "bin", "sluice-worker")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """error.code of an error reply."""
        return self.json()["error"]["code"]


class Raw:
    """A connection whose every byte the test decides."""

    def __init__(self, port, rcvbuf=None):
        self.s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if rcvbuf:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.s.settimeout(LIMIT_S)
        self.s.connect(("127.0.0.1", port))
        self.buf = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def send(self, data):
        self.s.sendall(data)
        return self

    def request(self, method, path, body=None, headers=()):
        """A request with Content-Length; body is bytes or an object."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        head = ["%s %s HTTP/1.1" % (method, path), "Host: test"] + list(headers)
        if body is not None:
            head.append("Content-Length: %d" % len(body))
        return self.send("\r\n".join(head).encode() + b"\r\n\r\n" + (body or b""))

    def _more(self):
        part = self.s.recv(65536)
        self.buf += part
        return bool(part)

    def line(self):
        while b"\n" not in self.buf:
            if not self._more():
                line, self.buf = self.buf, b""
                return line
        line, _, self.buf = self.buf.partition(b"\n")
        return line + b"\n"

    def exactly(self, n):
        while len(self.buf) < n:
            if not self._more():
                raise AssertionError("the connection ended after %d of %d bytes" % (len(self.buf), n))
        data, self.buf = self.buf[:n], self.buf[n:]
        return data

    def head(self):
        """(status, headers) of the next final reply; None when the connection ended."""
        while True:
            first = self.line()
            if not first:
                return None, {}
            status = int(first.split()[1])
            headers = {}
            while True:
                line = self.line().strip()
                if not line:
                    break
                key, _, value = line.decode("latin-1").partition(":")
                headers[key.strip().lower()] = value.strip()
            if status != 100:
                return status, headers
            self.continued = True

    def chunks(self):
        while True:
            size = int(self.line(), 16)
            data = self.exactly(size)
            self.exactly(2)
            if size == 0:
                return
            yield data

    def reply(self, head_only=False):
        self.continued = False
        status, headers = self.head()
        if status is None:
            return None
        if head_only:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self.exactly(int(headers["content-length"]))
        return Reply(status, headers, body)

    def events(self):
        """Events of a stream after head(): objects, ("error", object), and the string DONE."""
        rest = b""
        for part in self.chunks():
            rest += part
            while b"\n\n" in rest:
                event, _, rest = rest.partition(b"\n\n")
                if event == b"data: [DONE]":
                    yield "DONE"
                elif event.startswith(b"event: error\ndata: "):
                    yield "error", json.loads(event[19:])
                else:
                    assert event.startswith(b"data: ") and b"\n" not in event, event
                    yield json.loads(event[6:])
        assert rest == b"", rest

    def ended(self):
        """Reads to the end; true when the other side closed without another byte."""
        try:
            while self._more():
                pass
        except ConnectionResetError:
            pass
        return self.buf == b""


class Pair:
    def __init__(self, test, *flags, model=TINY, engine="null", worker=(), start_worker=True, preexec=None):
        self.test, self.model_file, self.engine, self.worker_flags = test, model, engine, worker
        self.state = test.path("gw%d" % len(test.processes))
        self.link = "ipc://%s.link" % self.state
        argv = [GATEWAY, "--model", model, "--http", "127.0.0.1:0", "--rpc", "tcp://127.0.0.1:0",
                "--workers-endpoint", self.link, "--state", self.state, *flags]
        self.gateway = self._start(argv, preexec)
        self.worker = None
        info = wait_until(self._state_file, "the gateway's state file")
        self.port, self.rpc = info["http_port"], info["rpc"]
        self.name = os.path.splitext(os.path.basename(model))[0]
        if start_worker:
            self.start_worker()
            self.wait_ready()

    def _start(self, argv, preexec=None):
        if preexec:
            argv = ["/bin/sh", "-c", preexec + '; exec "$@"', "sh"] + argv
        p = Process(argv, self.test.env)
        self.test.processes.append(p)
        return p

    def _state_file(self):
        if self.gateway.popen.poll() is not None:
            raise AssertionError("the gateway ended\n" + self.gateway.tail())
        try:
            with open(os.path.join(self.state, "gateway.json")) as f:
                return json.load(f)
        except OSError:
            return None

    def start_worker(self):
        argv = [WORKER, "--model", self.model_file, "--engine", self.engine, "--workers-endpoint", self.link,
                "--state", self.state + ".w", "--threads", "1", *self.worker_flags]
        self.worker = self._start(argv)

    def kill_worker(self):
        self.worker.signal(signal.SIGKILL)
        self.worker.wait()

    def wait_ready(self):
        def ready():
            r = self.call("GET", "/ready")
            return r is not None and r.status == 200  # None: closed without a word, for want of memory
        wait_until(ready, "a ready worker")

    def raw(self, **keys):
        return Raw(self.port, **keys)

    def call(self, method, path, body=None, headers=()):
        with self.raw() as c:
            return c.request(method, path, body, list(headers)).reply(head_only=method == "HEAD")

    def chat_body(self, text="hi", **more):
        return dict({"model": self.name, "messages": [{"role": "user", "content": text}], "max_tokens": 16,
                     "temperature": 0}, **more)

    def completion_body(self, prompt="hi", **more):
        return dict({"model": self.name, "prompt": prompt, "max_tokens": 16, "temperature": 0}, **more)

    def chat(self, text="hi", headers=(), **more):
        return self.call("POST", "/v1/chat/completions", self.chat_body(text, **more), headers)

    def completion(self, prompt="hi", headers=(), **more):
        return self.call("POST", "/v1/completions", self.completion_body(prompt, **more), headers)

    def open_stream(self, path, body, headers=()):
        """A connection with a stream's request sent; its head not read yet."""
        return self.raw().request("POST", path, dict(body, stream=True), list(headers))

    def stream(self, path, body, headers=()):
        """All events of a stream."""
        with self.open_stream(path, body, headers) as c:
            status, head = c.head()
            self.test.assertEqual(status, 200, c.buf)
            return list(c.events())

    def metric(self, name, labels=""):
        text = self.call("GET", "/metrics").body.decode()
        rows = re.findall(r"^%s\{([^}]*)\} (\S+)$" % re.escape(name), text, re.M)
        assert rows, name
        return sum(float(v) for have, v in rows if labels in have)

    def wait_idle(self):
        """Nothing runs, waits or is read any more, and no memory is held for requests."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "sluice:requests_live",
                 "sluice:queue_bytes")
        wait_until(lambda: all(self.metric(n) == 0 for n in names), "an idle gateway", 20)

    def stop(self, limit_s=LIMIT_S):
        self.gateway.signal(signal.SIGTERM)
        return self.gateway.wait(limit_s)


def text_of(events, index=0):
    """The joined text of one choice of a stream, chat or completion."""
    out = []
    for e in events:
        if not isinstance(e, dict):
            continue
        for c in e["choices"]:
            if c["index"] == index:
                out.append(c["delta"].get("content") or "" if "delta" in c else c["text"])
    return "".join(out)


def finishes(events, index=0):
    return [c["finish_reason"] for e in events if isinstance(e, dict) for c in e["choices"]
            if c["index"] == index and c["finish_reason"]]


class ApiTest(harness.E2ETest):
    pair = None

    def open_pair(self, *flags, **keys):
        self.pair = Pair(self, *flags, **keys)
        return self.pair

    def tearDown(self):
        ended = [(p, p.popen.poll()) for p in self.processes]
        super().tearDown()
        for p, code in ended:  # no crash, no sanitizer report, whatever the test did
            self.assertIn(code, (None, 0, -signal.SIGKILL, -signal.SIGTERM), p.tail())
