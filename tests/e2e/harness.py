"""What the end-to-end tests stand on: `sluice up` on free ports in a folder of its own, and no process left.

Standard library only. A test derives from E2ETest; everything it starts carries a mark in its environment
and is in a session of its own; tearDown kills what is left and fails when a server's process outlives it.
Waiting is always for an event (a line, a process's end, a condition), never for a time; the limits below
only end a test that hangs.
"""
import http.client
import json
import os
import queue
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("SLUICE_SOURCE_DIR", os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("SLUICE_BUILD_DIR", os.path.join(SOURCE, "build", "dev"))
SLUICE = os.path.join(BUILD, "bin", "sluice")
TINY = os.path.join(BUILD, "tests", "tiny.gguf")
LIMIT_S = 60  # a hung test ends here
MARK = "SLUICE_E2E_MARK"
READY = re.compile(r"^READY (http://(\S+):(\d+)/v1) rpc (\S+) model (\S+)$")


def real_model():
    """The real model's file, or None."""
    cached = os.path.join(SOURCE, ".cache", "model", "SmolLM2-135M-Instruct.Q4_1.gguf")
    for path in (os.environ.get("SLUICE_MODEL"), cached):
        if path and os.path.exists(path):
            return path
    return None


def wait_until(condition, what, limit_s=LIMIT_S):
    """Polls a condition that makes no event of its own; returns its value."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("waited %d s for: %s" % (limit_s, what))


def wait_gone(pid, limit_s=LIMIT_S):
    """Waits for the end of any process, a child or not (a zombie counts as ended)."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([fd], [], [], limit_s)[0]:
            raise AssertionError("process %d is still there after %d s" % (pid, limit_s))
    finally:
        os.close(fd)


def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def marked(mark):
    """Pids of live processes that carry the mark."""
    want = ("%s=%s" % (MARK, mark)).encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or want not in _read("/proc/%s/environ" % name).split(b"\0"):
            continue
        state = _read("/proc/%s/stat" % name).rpartition(b")")[2].split()
        if state and state[0] not in (b"Z", b"X"):
            found.append(int(name))
    return found


class Process:
    """A command of ours: both outputs as they come."""

    def __init__(self, argv, env, stdin=None):
        self.argv = argv
        self.popen = subprocess.Popen(argv, env=env, stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True)
        self.lines = queue.Queue()
        self.out, self.err = [], []  # whole lines
        self.out_bytes = bytearray()  # all of stdout
        self.first_output = threading.Event()
        self.threads = [threading.Thread(target=self._follow, args=a, daemon=True) for a in
                        ((self.popen.stdout, self.out, True), (self.popen.stderr, self.err, False))]
        for t in self.threads:
            t.start()

    def _follow(self, pipe, into, is_stdout):
        rest = b""
        while True:
            part = os.read(pipe.fileno(), 65536)
            if is_stdout and part:
                self.out_bytes += part
                self.first_output.set()
            *lines, rest = (rest + part).split(b"\n")
            if not part and rest:
                lines.append(rest)
            for line in lines:
                text = line.decode(errors="replace")
                into.append(text)
                if is_stdout:
                    self.lines.put(text)
            if not part:
                pipe.close()
                if is_stdout:
                    self.lines.put(None)
                return

    def wait_output(self, limit_s=LIMIT_S):
        """Until there is any byte on stdout."""
        if not self.first_output.wait(limit_s):
            raise AssertionError("no output in %d s\n%s" % (limit_s, self.tail()))

    def wait_line(self, pattern, limit_s=LIMIT_S):
        """The match of the next line of stdout that fits; what is before it is passed over."""
        end = time.monotonic() + limit_s
        while True:
            try:
                line = self.lines.get(timeout=max(0.001, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError("no line '%s' in %d s\n%s" % (pattern, limit_s, self.tail()))
            if line is None:
                raise AssertionError("ended before '%s'\n%s" % (pattern, self.tail()))
            match = re.match(pattern, line)
            if match:
                return match

    def wait(self, limit_s=LIMIT_S):
        """The exit code (negative: the signal) after both outputs were read to their end."""
        try:
            code = self.popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError("%s did not end in %d s\n%s" % (self.argv[1:3], limit_s, self.tail()))
        for t in self.threads:
            t.join(limit_s)
        return code

    def signal(self, number):
        self.popen.send_signal(number)

    def tail(self):
        return "\n".join(["--- stdout"] + self.out[-20:] + ["--- stderr"] + self.err[-60:])


class Server(Process):
    """`sluice up` on free ports."""

    def __init__(self, test, *flags, model=TINY, state=None):
        self.state = state or os.path.join(test.dir, "state")
        argv = [SLUICE, "up", "--model", model, "--http", "127.0.0.1:0", "--rpc", "tcp://127.0.0.1:0",
                "--workers-endpoint", "tcp://127.0.0.1:0", "--state", self.state, *flags]
        super().__init__(argv, test.env)
        self.host = self.port = self.rpc = self.model = None

    def ready(self):
        """Waits for the next READY line."""
        match = self.wait_line(READY)
        self.host, self.port, self.rpc, self.model = match[2], int(match[3]), match[4], match[5]
        return self

    def children(self):
        """{"gateway": pid, "worker": pid} of those that run now."""
        found = {}
        listed = _read("/proc/%d/task/%d/children" % (self.popen.pid, self.popen.pid)).split()
        for pid in map(int, listed):
            name = os.path.basename(_read("/proc/%d/cmdline" % pid).split(b"\0")[0].decode())
            if name.startswith("sluice-"):
                found[name[len("sluice-"):]] = pid
        return found

    def http(self, method, path, body=None, headers=None):
        """(status, headers, body); a body that is no bytes goes as JSON, a JSON reply comes as object."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)
        try:
            head = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                head.setdefault("Content-Type", "application/json")
            c.request(method, path, body, head)
            r = c.getresponse()
            data = r.read()
            if "json" in (r.getheader("Content-Type") or ""):
                data = json.loads(data)
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), data
        finally:
            c.close()

    def sse(self, path, body, headers=None):
        """The events of a stream as objects, as they come; ends at [DONE] or at the connection's end.
        An event with a name comes as (name, object)."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)
        try:
            c.request("POST", path, json.dumps(dict(body, stream=True)).encode(),
                      dict(headers or {}, **{"Content-Type": "application/json"}))
            r = c.getresponse()
            if r.status != 200:
                raise AssertionError("stream refused: %d %s" % (r.status, r.read()[:500]))
            name = None
            for raw in r:
                line = raw.decode().rstrip("\r\n")
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    data = line[5:].strip()
                    if data == "[DONE]":
                        return
                    yield (name, json.loads(data)) if name else json.loads(data)
                elif line == "":
                    name = None
        finally:
            c.close()

    def metric(self, name):
        """Sum of a metric's samples over its labels."""
        status, _, text = self.http("GET", "/metrics")
        assert status == 200
        rows = re.findall(r"^%s(?:\{[^}]*\})? (\S+)" % re.escape(name), text.decode(), re.M)
        return sum(float(v) for v in rows)

    def stop(self, number=signal.SIGTERM):
        self.signal(number)
        return self.wait()


class E2ETest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="sluice-e2e-")
        self.mark = uuid.uuid4().hex
        self.env = dict(os.environ, **{MARK: self.mark})
        self.processes = []

    def tearDown(self):
        failed = self._failed()
        for p in self.processes:
            if p.popen.poll() is None:
                p.popen.kill()
            p.wait()
        left = marked(self.mark)
        for pid in left:  # children of a killed `up` may be on their way out
            try:
                wait_gone(pid, 5)
            except AssertionError:
                pass
        left = marked(self.mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if failed:
            for p in self.processes:
                print("=== %s\n%s" % (" ".join(p.argv), p.tail()), file=sys.stderr)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.assertEqual(left, [], "processes were left running")

    def _failed(self):
        outcome = getattr(self, "_outcome", None)
        result = getattr(outcome, "result", None)
        rows = list(getattr(result, "failures", [])) + list(getattr(result, "errors", []))
        return any(test is self for test, _ in rows)

    def server(self, *flags, **keys):
        """A started server, not yet ready."""
        p = Server(self, *flags, **keys)
        self.processes.append(p)
        return p

    def start(self, *argv, stdin=None):
        """`sluice argv...`, running."""
        p = Process([SLUICE, *argv], self.env, stdin=stdin)
        self.processes.append(p)
        return p

    def run_cli(self, *argv, stdin_text=None):
        """`sluice argv...` to its end: (exit code, stdout, stderr)."""
        r = subprocess.run([SLUICE, *argv], env=self.env, text=True, capture_output=True, timeout=LIMIT_S,
                           input=stdin_text, stdin=None if stdin_text is not None else subprocess.DEVNULL,
                           start_new_session=True, errors="replace")
        return r.returncode, r.stdout, r.stderr

    def path(self, name):
        return os.path.join(self.dir, name)


def main():
    for program in ("sluice", "sluice-gateway", "sluice-worker"):
        if not os.path.exists(os.path.join(BUILD, "bin", program)):
            sys.exit("%s is not built in %s/bin" % (program, BUILD))
    unittest.main(verbosity=2)
