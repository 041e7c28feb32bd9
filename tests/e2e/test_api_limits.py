"""Limits: slow headers, slow bodies, slow readers, too many connections, too much memory, no descriptors left."""
import time

import harness
from api_rig import ApiTest, Raw, text_of
from harness import wait_until


class Limits(ApiTest):
    def test_slow_headers_and_bodies(self):
        p = self.open_pair("--header-timeout-s", "0.6", "--body-timeout-s", "0.8")
        silent, dripping = p.raw(), p.raw()
        body = p.raw().send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        headers = p.raw().send(b"GET /live HTTP/1.1\r\nHost: x\r\n")
        chunked = p.raw().send(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
        dripping.s.settimeout(0.1)

        def drip():
            """A byte now and then does not keep a connection alive."""
            try:
                dripping.s.sendall(b"x")
                return dripping.s.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True
        wait_until(drip, "the end of the dripping connection")
        self.assertTrue(silent.ended())
        for c in (headers, body, chunked):
            r = c.reply()
            self.assertEqual((r.status, r.code, r.headers["connection"]), (408, "request_timeout", "close"))
            self.assertTrue(c.ended())
        self.assertEqual(p.call("GET", "/live").status, 200)
        p.wait_idle()

    def test_slow_reader(self):
        """A client that reads nothing is cut; memory stays small, others go on (B28)."""
        p = self.open_pair("--slow-reader-s", "1", worker=("--null-step-us", "300", "--null-token-us", "1"))
        body = p.chat_body(max_tokens=1900, ignore_eos=True, logprobs=True, top_logprobs=20)
        stuck = [Raw(p.port, rcvbuf=2048).request("POST", "/v1/chat/completions", dict(body, stream=True)) for _ in range(4)]
        whole = Raw(p.port, rcvbuf=2048).request("POST", "/v1/chat/completions", body)
        p.chat(max_tokens=5)
        wait_until(lambda: p.metric("sluice:slow_readers_cut_total") == 5, "five readers cut", 60)
        p.wait_idle()
        self.assertEqual(p.chat(max_tokens=5).status, 200)
        for c in stuck + [whole]:
            c.s.close()

    def test_a_reader_that_reads_is_not_cut(self):
        p = self.open_pair("--slow-reader-s", "1", worker=("--null-step-us", "30000"))
        events = p.stream("/v1/chat/completions", p.chat_body(max_tokens=80, ignore_eos=True))
        self.assertEqual(events[-1], "DONE")  # over two seconds, most of the time with nothing to read
        self.assertEqual(p.metric("sluice:slow_readers_cut_total"), 0)

    def test_connections(self):
        p = self.open_pair("--max-connections", "8")
        held = [p.raw() for _ in range(7)]
        for c in held:
            self.assertEqual(c.request("GET", "/live").reply().status, 200)

        def eighth():
            c = p.raw()
            if c.request("GET", "/live").reply().status == 200:
                return c
            c.s.close()  # the connection of a call before is still on its way out

        with wait_until(eighth, "the eighth is taken"), p.raw() as over:
            r = over.request("GET", "/live").reply()
            self.assertEqual((r.status, r.code), (503, "queue_full"))
            self.assertTrue(int(r.headers["retry-after"]) > 0)
        for c in held:
            c.s.close()
        wait_until(lambda: p.call("GET", "/live").status == 200, "room again")

    def test_queue(self):
        """Requests over the limit get 503 with Retry-After; those inside all end."""
        p = self.open_pair("--max-queue-requests", "4", "--max-promises", "0", worker=("--max-seqs", "1", "--null-step-us", "5000"))
        inside = [p.raw().request("POST", "/v1/chat/completions", p.chat_body(max_tokens=100, ignore_eos=True)) for _ in range(4)]
        wait_until(lambda: p.metric("vllm:num_requests_running") + p.metric("vllm:num_requests_waiting") == 4, "four requests")
        r = p.chat(max_tokens=1)
        self.assertEqual((r.status, r.code), (503, "queue_full"))
        self.assertTrue(int(r.headers["retry-after"]) > 0)
        for c in inside:
            self.assertEqual(c.reply().json()["usage"]["completion_tokens"], 100)
            c.s.close()
        p.wait_idle()

    def test_memory(self):
        """Bodies count while they come in: what would pass max-queue-bytes is 503, and it is given back."""
        p = self.open_pair("--max-queue-bytes", "1m")
        body = b'{"model":"tiny","prompt":"' + b"a" * 700000 + b'"}'
        half = p.raw().send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:-1])
        wait_until(lambda: p.metric("sluice:queue_bytes") >= len(body) - 1, "the half-sent body")
        r = p.call("POST", "/v1/completions", body)
        self.assertEqual((r.status, r.code), (503, "queue_full"))
        self.assertEqual(p.chat(max_tokens=1).status, 200)
        self.assertEqual(half.send(body[-1:]).reply().code, "context_length_exceeded")
        half.s.close()
        p.wait_idle()

    def test_no_descriptors(self):
        """200 dripping sockets under a limit of 128 descriptors: a running stream goes on, the processor is not
        burnt, and all recovers by itself (B39)."""
        p = self.open_pair("--header-timeout-s", "1.5", worker=("--null-step-us", "20000"), preexec="ulimit -n 128")
        body = p.chat_body(max_tokens=150, ignore_eos=True, stream_options={"include_usage": True})
        c = p.open_stream("/v1/chat/completions", body)
        self.assertEqual(c.head()[0], 200)
        events = c.events()
        got = [next(events)]
        slow = []
        for _ in range(200):
            slow.append(p.raw().send(b"G"))
        cpu = self.cpu_s(p)
        start = time.monotonic()
        got += list(events)
        self.assertEqual((got[-1], got[-2]["usage"]["completion_tokens"]), ("DONE", 150))
        self.assertLess(self.cpu_s(p) - cpu, 0.6 * (time.monotonic() - start) + 0.5)
        for s in slow:
            s.s.close()
        # the loop may come to the new connection before the last of the closed ones
        wait_until(lambda: p.chat(max_tokens=1).status == 200, "a free connection")
        c.s.close()
        p.wait_idle()

    def cpu_s(self, p):
        with open("/proc/%d/stat" % p.gateway.popen.pid) as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    harness.main()
