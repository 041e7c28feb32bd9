"""Clients that go away: whatever their request was doing, its sequences are freed and others do not notice."""
import socket
import struct

import harness
from api_rig import ApiTest, text_of
from harness import wait_until


def reset(c):
    """Leaves with RST instead of FIN."""
    c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.s.close()


class Gone(ApiTest):
    def setUp(self):
        super().setUp()
        self.p = self.open_pair(worker=("--max-seqs", "1", "--null-step-us", "3000"))

    def aborted(self):
        return self.p.metric("sluice:requests_aborted_total")

    def long(self, **more):
        return self.p.chat_body(max_tokens=1500, ignore_eos=True, **more)

    def running(self):
        return self.p.metric("vllm:num_requests_running")

    def test_streams(self):
        """After some tokens, by FIN, by RST and by half a close (B29)."""
        for k, leave in enumerate((lambda c: c.s.close(), reset, lambda c: c.s.shutdown(socket.SHUT_WR))):
            c = self.p.open_stream("/v1/chat/completions", self.long())
            self.assertEqual(c.head()[0], 200)
            events = c.events()
            for _ in range(5):
                next(events)
            leave(c)
            self.p.wait_idle()
            self.assertEqual(self.aborted(), k + 1)
            c.s.close()

    def test_whole_replies(self):
        """A client that waits for the whole reply and leaves meanwhile."""
        for k, leave in enumerate((lambda c: c.s.close(), reset)):
            c = self.p.raw().request("POST", "/v1/chat/completions", self.long())
            wait_until(lambda: self.running() == 1, "a running request")
            leave(c)
            self.p.wait_idle()
            self.assertEqual(self.aborted(), k + 1)

    def test_queued(self):
        """One seat, five that wait: they never run, the next one does (B31)."""
        first = self.p.open_stream("/v1/chat/completions", self.long())
        first.head()
        next(first.events())
        waiting = [self.p.raw().request("POST", "/v1/chat/completions", self.long()) for _ in range(5)]
        live = lambda: self.p.metric("sluice:requests_live")
        wait_until(lambda: live() == 6, "six requests")
        made = self.p.metric("vllm:prompt_tokens_total")
        for c in waiting:
            c.s.close()
        wait_until(lambda: live() == 1, "the five gone")
        seventh = self.p.raw().request("POST", "/v1/chat/completions", self.p.chat_body(max_tokens=3, ignore_eos=True))
        first.s.close()
        self.assertEqual(seventh.reply().json()["usage"]["completion_tokens"], 3)
        seventh.s.close()
        self.p.wait_idle()
        self.assertEqual(self.aborted(), 6)
        per_prompt = self.p.chat(max_tokens=1).json()["usage"]["prompt_tokens"]
        self.assertLessEqual(self.p.metric("vllm:prompt_tokens_total") - made, 3 * per_prompt)

    def test_being_read(self):
        """Leaving while the body is on a text lane, or half sent."""
        big = {"model": self.p.name, "prompt": "word " * 200000}
        for _ in range(5):
            self.p.raw().request("POST", "/v1/completions", big).s.close()
            c = self.p.raw().send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{\"mod")
            c.s.close()
            self.p.raw().send(b"GET /live HTT").s.close()
            self.p.raw().send(b"GET /live HTTP/1.1\r\nHost:").s.close()
            self.p.raw().s.close()
        self.p.wait_idle()
        wait_until(lambda: self.p.metric("sluice:http_connections") == 1, "no connection but the one that asks", 20)
        self.assertEqual(self.p.chat(max_tokens=2).status, 200)

    def test_same_id(self):
        """x-request-id is a label: an aborted request's id, or two live ones with the same (B33)."""
        want = self.p.chat("other", max_tokens=8, seed=1).json()["choices"]
        label = ["X-Request-Id: r1"]
        a = self.p.open_stream("/v1/chat/completions", self.long(), label)
        a.head()
        next(a.events())
        b = self.p.raw().request("POST", "/v1/chat/completions", self.p.chat_body("other", max_tokens=8, seed=1), label)
        a.s.close()
        self.assertEqual(b.reply().json()["choices"], want)
        b.s.close()
        self.p.wait_idle()

    def test_many_choices(self):
        """n choices of one request all go."""
        c = self.p.open_stream("/v1/chat/completions", self.long(n=8))
        c.head()
        next(c.events())
        c.s.close()
        self.p.wait_idle()
        self.assertEqual(self.aborted(), 8)

    def test_a_neighbour_is_not_touched(self):
        body = self.p.chat_body(max_tokens=60, ignore_eos=True, seed=9, temperature=1)
        want = text_of(self.p.stream("/v1/chat/completions", body))
        c = self.p.open_stream("/v1/chat/completions", body)
        c.head()
        events = c.events()
        got = []
        for i, e in enumerate(events):
            got.append(e)
            if i % 5 == 0:
                other = self.p.open_stream("/v1/chat/completions", self.long())
                reset(other) if i % 2 else other.s.close()
        c.s.close()
        self.assertEqual(text_of(got), want)
        self.p.wait_idle()


if __name__ == "__main__":
    harness.main()
