"""`sluice up` as a process: READY, stopping, restarts, and everything that must not be left behind."""
import os
import signal
import socket

from harness import E2ETest, TINY, main, marked, wait_gone, wait_until


class Up(E2ETest):
    def check_serves(self, s):
        status, _, body = s.http("GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(body["data"][0]["id"], s.model)
        status, _, body = s.http("POST", "/v1/completions", {"model": s.model, "prompt": "a", "max_tokens": 4,
                                                             "ignore_eos": True})
        self.assertEqual(status, 200, body)
        self.assertEqual(body["usage"]["completion_tokens"], 4)

    def test_ready_serves_and_sigterm_ends_all(self):
        s = self.server().ready()
        self.assertEqual(s.model, "tiny")
        self.check_serves(s)
        kids = s.children()
        self.assertEqual(set(kids), {"gateway", "worker"})
        self.assertEqual(s.stop(), 0)
        self.assertEqual(marked(self.mark), [])
        self.assertFalse(os.path.exists(os.path.join(s.state, "link.keys")))
        self.assertFalse(os.path.exists(os.path.join(s.state, "gateway.json")))

    def test_sigint_ends_all(self):
        s = self.server().ready()
        self.assertEqual(s.stop(signal.SIGINT), 0)
        self.assertEqual(marked(self.mark), [])

    def test_a_signal_before_ready_ends_all(self):
        s = self.server()
        wait_until(lambda: "gateway" in s.children(), "the gateway to start")
        self.assertEqual(s.stop(), 0)
        self.assertEqual(marked(self.mark), [])

    def test_children_leave_when_up_is_killed(self):
        s = self.server().ready()
        kids = s.children()
        s.popen.kill()
        for pid in kids.values():
            wait_gone(pid, 10)
        # The same directory and ports serve again at once.
        again = self.server("--http", "127.0.0.1:%d" % s.port).ready()
        self.assertEqual(again.port, s.port)
        self.assertEqual(again.stop(), 0)

    def test_killed_children_come_back_and_ready_is_said_again(self):
        s = self.server().ready()
        address = (s.port, s.rpc)
        for name in ("worker", "gateway", "worker"):
            old = s.children()
            os.kill(old[name], signal.SIGKILL)
            s.ready()
            self.assertEqual((s.port, s.rpc), address)
            new = s.children()
            self.assertEqual(set(new), {"gateway", "worker"})
            self.assertNotEqual(new[name], old[name])
            self.check_serves(s)
        self.assertEqual(s.stop(), 0)

    def test_both_children_killed_at_once(self):
        s = self.server().ready()
        for pid in s.children().values():
            os.kill(pid, signal.SIGKILL)
        s.ready()
        self.check_serves(s)
        self.assertEqual(s.stop(), 0)

    def test_keys_are_private_and_fresh_at_each_start(self):
        s = self.server().ready()
        keys = os.path.join(s.state, "link.keys")
        self.assertEqual(os.stat(keys).st_mode & 0o777, 0o600)
        with open(keys, "rb") as f:
            first = f.read()
        s.popen.kill()
        s.wait()
        t = self.server().ready()
        with open(keys, "rb") as f:
            self.assertNotEqual(f.read(), first)
        self.assertEqual(t.stop(), 0)

    def test_a_second_signal_ends_at_once(self):
        s = self.server("--engine", "null", "--null-step-us", "200000", "--drain-timeout-s", "600").ready()
        stream = s.sse("/v1/completions", {"model": s.model, "prompt": "a", "max_tokens": 400, "ignore_eos": True})
        next(stream)
        s.signal(signal.SIGTERM)
        wait_until(lambda: any("draining" in line for line in s.err), "the drain to begin")
        self.assertEqual(len(s.children()), 2)
        s.signal(signal.SIGTERM)
        self.assertEqual(s.wait(), 0)
        self.assertEqual(marked(self.mark), [])
        stream.close()

    def test_running_requests_end_before_a_drain_does(self):
        s = self.server("--engine", "null", "--null-step-us", "20000").ready()
        stream = s.sse("/v1/completions", {"model": s.model, "prompt": "a", "max_tokens": 20, "ignore_eos": True})
        events = [next(stream)]
        s.signal(signal.SIGTERM)
        events += list(stream)
        text = [e for e in events if isinstance(e, dict) and e.get("choices")]
        self.assertEqual(text[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(s.wait(), 0)


    def test_a_long_stream_keeps_the_link(self):
        # Tokens come faster than ticks here: they must not put the heartbeats off.
        s = self.server("--engine", "null", "--null-step-us", "20000", "--link-heartbeat-s", "0.1", "--link-silence-s",
                        "0.5").ready()
        events = list(s.sse("/v1/completions", {"model": s.model, "prompt": "a", "max_tokens": 100, "ignore_eos": True}))
        self.assertGreater(len(events), 50)
        self.assertEqual([line for line in s.err if "session ended" in line], [])
        self.assertEqual(s.stop(), 0)


class UpRefuses(E2ETest):
    def refused(self, p, code, *words):
        self.assertEqual(p.wait(), code, p.tail())
        self.assertEqual(p.out, [])
        text = "\n".join(p.err)
        for word in words:
            self.assertIn(word, text)
        return text

    def test_a_model_that_is_not_there(self):
        text = self.refused(self.server(model=self.path("none.gguf")), 2, "none.gguf", "No such file")
        self.assertEqual(len(text.splitlines()), 1)

    def test_a_model_that_is_no_model(self):
        with open(self.path("bad.gguf"), "wb") as f:
            f.write(b"not a model at all")
        self.refused(self.server(model=self.path("bad.gguf")), 2, "bad.gguf", "could not start")
        self.assertEqual(marked(self.mark), [])

    def test_a_port_that_is_taken(self):
        for flag, form in (("--http", "127.0.0.1:%d"), ("--rpc", "tcp://127.0.0.1:%d"),
                           ("--workers-endpoint", "tcp://127.0.0.1:%d")):
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                text = self.refused(self.server(flag, form % port), 1, "port %d is taken" % port, flag)
                self.assertEqual(len(text.splitlines()), 1)

    def test_one_port_for_two_doors(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.refused(self.server("--http", "127.0.0.1:%d" % port, "--rpc", "tcp://127.0.0.1:%d" % port), 1,
                     "--http and --rpc")

    def test_two_of_one_state_directory(self):
        s = self.server().ready()
        self.refused(self.server(), 1, "another `sluice up`", "process %d" % s.popen.pid, "--state")
        self.assertEqual(s.stop(), 0)

    def test_a_state_directory_that_cannot_be(self):
        with open(self.path("file"), "w"):
            pass
        self.refused(self.server(state=self.path("file/state")), 1, "cannot make the directory")

    def test_settings(self):
        self.refused(self.server("--workers", "2"), 1, "workers")
        self.refused(self.server("--http", "0.0.0.0:0"), 1, "loopback")
        self.refused(self.server("--max-sqs", "3"), 1, "did you mean --max-seqs")

    def test_help_and_version(self):
        code, out, _ = self.run_cli("up", "--help")
        self.assertEqual(code, 0)
        for word in ("--model", "Exit codes", "Examples", "READY http://"):
            self.assertIn(word, out)
        code, out, _ = self.run_cli("up", "--check-config", "--model", TINY)
        self.assertEqual(code, 0)
        self.assertIn("tiny", out)


if __name__ == "__main__":
    main()
