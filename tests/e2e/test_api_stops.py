"""Stop strings at the client: no part of one is ever sent, the answer ends where it completes, and the worker with it."""
import harness
from api_rig import ApiTest, finishes, text_of


class Stops(ApiTest):
    def setUp(self):
        super().setUp()
        self.p = self.open_pair(engine="cpu")
        # a known text first; stops are then taken out of it
        self.full = self.p.completion("the hello", max_tokens=300, ignore_eos=True).json()["choices"][0]["text"]
        self.assertGreater(len(self.full), 100)

    def ends(self, text, stops):
        """Where the first of the stops to complete begins; of several that complete there, the longest."""
        done = [(text.find(s) + len(s), -len(s)) for s in stops if s in text]
        return min(done)[0] + min(done)[1] if done else len(text)

    def check(self, stops, **more):
        body = self.p.completion_body("the hello", max_tokens=300, ignore_eos=True, stop=stops, **more)
        whole = self.p.call("POST", "/v1/completions", body).json()["choices"][0]
        want = self.full[:self.ends(self.full, stops)]
        self.assertEqual(whole["text"], want, stops)
        events = self.p.stream("/v1/completions", body)
        self.assertEqual(text_of(events), want)
        reason = "stop" if len(want) < len(self.full) else "length"
        self.assertEqual((whole["finish_reason"], finishes(events)), (reason, [reason]))
        sent = ""
        for e in events[:-1]:
            sent += e["choices"][0]["text"]
            self.assertTrue(want.startswith(sent))

    def test_pieces_of_the_text(self):
        printable = [i for i in range(20, 200) if self.full[i:i + 9].isascii() and self.full[i:i + 9].isprintable()]
        self.assertGreater(len(printable), 3)
        for i in printable[::max(1, len(printable) // 6)]:
            self.check([self.full[i:i + 1]])
            self.check([self.full[i:i + 9]])
            self.check([self.full[i:i + 5], self.full[i + 2:i + 9], self.full[i:i + 9]])
        self.check(["never in this text at all"])
        self.check(["the hello"])  # the prompt does not count

    def test_multibyte(self):
        wide = [c for c in self.full if ord(c) > 127 and c != "\ufffd"]
        for c in wide[:3]:
            self.check([c])

    def test_include_stop(self):
        i = next(i for i in range(20, 250) if self.full[i:i + 3].isascii() and self.full.find(self.full[i:i + 3]) == i)
        stop = self.full[i:i + 3]
        r = self.p.completion("the hello", max_tokens=300, ignore_eos=True, stop=stop, include_stop_str_in_output=True).json()
        self.assertEqual(r["choices"][0]["text"], self.full[:i + 3])

    def test_the_worker_stops_too(self):
        """Tokens made end at the match, not at max_tokens (B35)."""
        i = next(i for i in range(20, 250) if self.full[i:i + 3].isascii() and self.full.find(self.full[i:i + 3]) == i)
        before = self.p.metric("vllm:generation_tokens_total")
        r = self.p.completion("the hello", max_tokens=2000, ignore_eos=True, stop=self.full[i:i + 3]).json()
        self.p.wait_idle()
        made = self.p.metric("vllm:generation_tokens_total") - before
        self.assertEqual(made, r["usage"]["completion_tokens"])
        self.assertLessEqual(made, 300)

    def test_min_tokens(self):
        """A stop that completes before min_tokens is ignored, in the stream too."""
        stop = next(c for c in self.full[:20] if c.isascii())
        body = self.p.completion_body("the hello", max_tokens=100, min_tokens=60, ignore_eos=True, stop=[stop])
        whole = self.p.call("POST", "/v1/completions", body).json()
        self.assertGreaterEqual(whole["usage"]["completion_tokens"], 60)
        self.assertIn(stop, whole["choices"][0]["text"])
        self.assertEqual(text_of(self.p.stream("/v1/completions", body)), whole["choices"][0]["text"])


if __name__ == "__main__":
    harness.main()
