"""The worker's death and the gateway's own end: streams go on byte for byte, or end with one clear error."""
import signal
import threading

import harness
from api_rig import ApiTest, finishes, text_of
from harness import real_model, wait_until


class Reader(threading.Thread):
    """Reads one stream to its end."""

    def __init__(self, connection):
        super().__init__(daemon=True)
        self.c, self.events, self.failure = connection, [], None
        self.start()

    def run(self):
        try:
            self.status, self.head = self.c.head()
            if self.status == 200:
                for e in self.c.events():
                    self.events.append(e)
            else:
                self.events.append(self.c.exactly(int(self.head["content-length"])))
        except Exception as e:  # shown by the test
            self.failure = e
        self.c.s.close()

    def done(self, test):
        self.join(harness.LIMIT_S)
        test.assertFalse(self.is_alive(), "a client hangs")
        test.assertIsNone(self.failure)
        return self.events


class Worker(ApiTest):
    def kill_in_the_middle(self, tokens, after, **keys):
        p = self.open_pair("--no-worker-timeout-s", "30", **keys)
        bodies = [p.chat_body("question %d" % i, max_tokens=tokens, seed=i, temperature=i % 2, ignore_eos=True)
                  for i in range(8)]
        path = "/v1/chat/completions"
        want = [text_of(r.done(self)) for r in [Reader(p.open_stream(path, b)) for b in bodies]]
        readers = [Reader(p.open_stream(path, b)) for b in bodies]
        wait_until(lambda: all(len(r.events) >= after for r in readers), "all eight streams under way")
        p.kill_worker()
        before = [len(r.events) for r in readers]
        self.assertTrue(any(n < tokens for n in before))
        p.start_worker()
        for r, text in zip(readers, want):
            events = r.done(self)
            self.assertEqual(events[-1], "DONE")
            self.assertEqual(text_of(events), text)
            self.assertEqual(finishes(events), ["length"])
        self.assertGreater(p.metric("sluice:resubmits_total"), 0)
        p.wait_idle()

    def test_killed_null(self):
        self.kill_in_the_middle(200, 10, worker=("--null-step-us", "10000"))

    def test_killed_tiny(self):
        # chaos delays each step by milliseconds: no machine is through before the kill
        self.kill_in_the_middle(1200, 1, engine="cpu", worker=("--debug-chaos", "7"))

    def test_killed_real(self):
        if not real_model():
            self.skipTest("the real model is not here")
        self.kill_in_the_middle(120, 2, engine="cpu", model=real_model())

    def test_no_worker(self):
        """Streams end with `event: error`, whole replies with 503, and a worker that comes later serves again."""
        p = self.open_pair("--no-worker-timeout-s", "0.5", worker=("--null-step-us", "10000"))
        self.assertEqual(p.call("GET", "/ready").status, 200)
        readers = [Reader(p.open_stream("/v1/chat/completions", p.chat_body(max_tokens=1000, ignore_eos=True))) for _ in range(4)]
        whole = p.raw().request("POST", "/v1/completions", p.completion_body(max_tokens=1000, ignore_eos=True))
        wait_until(lambda: all(len(r.events) > 3 for r in readers), "streams under way")
        p.kill_worker()
        for r in readers:
            events = r.done(self)
            self.assertEqual(events[-1][0], "error")
            self.assertEqual(events[-1][1]["error"]["code"], "worker_lost")
            self.assertEqual([e for e in events if isinstance(e, tuple)], [events[-1]])
            self.assertEqual(finishes(events), [])
        r = whole.reply()
        self.assertEqual((r.status, r.code), (503, "worker_lost"))
        whole.s.close()
        r = p.call("GET", "/ready")
        self.assertEqual((r.status, r.code), (503, "no_worker"))
        r = p.chat()
        self.assertEqual((r.status, r.code), (503, "no_worker"))
        self.assertTrue(int(r.headers["retry-after"]) > 0)
        p.wait_idle()
        p.start_worker()
        p.wait_ready()
        self.assertEqual(p.chat().status, 200)

    def test_waits_for_a_worker(self):
        """A request that comes before the worker is served once it is there."""
        p = self.open_pair("--no-worker-timeout-s", "30", start_worker=False)
        c = p.raw().request("POST", "/v1/chat/completions", p.chat_body(max_tokens=4, ignore_eos=True))
        wait_until(lambda: p.metric("vllm:num_requests_waiting") == 1, "a waiting request")
        p.start_worker()
        self.assertEqual(c.reply().json()["usage"]["completion_tokens"], 4)
        c.s.close()

    def test_stopped_worker(self):
        """A worker that stands still is no worker; woken, it serves again."""
        p = self.open_pair("--link-silence-s", "0.5", "--link-heartbeat-s", "0.1", "--no-worker-timeout-s", "30",
                           worker=("--null-step-us", "10000", "--link-heartbeat-s", "0.1"))
        body = p.chat_body(max_tokens=100, ignore_eos=True)
        want = text_of(p.stream("/v1/chat/completions", body))
        r = Reader(p.open_stream("/v1/chat/completions", body))
        wait_until(lambda: len(r.events) > 5, "a stream under way")
        p.worker.signal(signal.SIGSTOP)
        wait_until(lambda: p.call("GET", "/ready").status == 503, "not ready")
        p.worker.signal(signal.SIGCONT)
        self.assertEqual(text_of(r.done(self)), want)


class Drain(ApiTest):
    def start(self, *flags):
        self.p = self.open_pair(*flags, worker=("--null-step-us", "10000", "--max-seqs", "2"))
        self.body = self.p.chat_body(max_tokens=150, ignore_eos=True)
        counted = dict(self.body, stream_options={"include_usage": True})
        self.running = [Reader(self.p.open_stream("/v1/chat/completions", counted)) for _ in range(2)]
        wait_until(lambda: all(len(r.events) > 3 for r in self.running), "streams under way")

    def test_first_signal(self):
        """Running streams finish; /ready is 503 at once, new requests too, and the process ends by itself (B70)."""
        self.start()
        keep = self.p.raw()
        self.assertEqual(keep.request("GET", "/ready").reply().status, 200)
        batch = [self.p.raw().request("POST", "/v1/chat/completions", dict(self.body, service_tier="flex")) for _ in range(40)]
        wait_until(lambda: self.p.metric("sluice:requests_live") == 42, "all requests here")
        wait_until(lambda: self.p.metric("vllm:num_requests_running") + self.p.metric("vllm:num_requests_waiting") == 42,
                   "all requests admitted")
        waiting = self.p.metric("vllm:num_requests_waiting")
        self.p.gateway.signal(signal.SIGTERM)
        wait_until(lambda: keep.request("GET", "/ready").reply().status == 503, "not ready")
        r = self.p.chat()
        self.assertEqual((r.status, r.code), (503, "draining"))
        self.assertTrue(int(r.headers["retry-after"]) > 0)
        for r in self.running:
            events = r.done(self)
            self.assertEqual((events[-1], events[-2]["usage"]["completion_tokens"]), ("DONE", 150))
        statuses = [c.reply().status for c in batch]
        self.assertEqual(statuses.count(503), waiting)  # no worker had seen those
        self.assertEqual(statuses.count(200), 40 - waiting)
        self.assertEqual(self.p.gateway.wait(), 0)
        for c in batch + [keep]:
            c.s.close()

    def test_second_signal(self):
        self.start()
        self.p.gateway.signal(signal.SIGTERM)
        wait_until(lambda: self.p.call("GET", "/ready").status == 503, "draining")
        self.p.gateway.signal(signal.SIGTERM)
        self.assertEqual(self.p.gateway.wait(5), 0)
        for r in self.running:
            events = r.done(self)
            self.assertEqual(events[-1][1]["error"]["code"], "draining")

    def test_drain_time(self):
        """What is not done when the time is over is told so."""
        self.start("--drain-timeout-s", "0.3")
        half = self.p.raw().send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        whole = self.p.raw().request("POST", "/v1/completions", self.p.completion_body(max_tokens=1000, ignore_eos=True))
        wait_until(lambda: self.p.metric("sluice:requests_live") == 3, "the third request")
        self.p.gateway.signal(signal.SIGTERM)
        for r in self.running:
            self.assertEqual(r.done(self)[-1][1]["error"]["code"], "draining")
        self.assertEqual(whole.reply().code, "draining")
        self.assertEqual(self.p.gateway.wait(10), 0)
        self.assertTrue(half.ended())
        for c in (half, whole):
            c.s.close()


if __name__ == "__main__":
    harness.main()
