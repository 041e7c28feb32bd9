"""What a tenant may use: output, requests a minute, in flight, tokens a minute, waiting for them.

Of the shared cases: B88 (reserved at admission, in one step) and B90 (who breaks off pays for what was made).
"""
import json

import harness
from harness import wait_until
from tenants_rig import TenantsTest


class Limits(TenantsTest):
    def one(self, limits, *flags, **keys):
        """A tenant with these limits, its key, a gateway."""
        self.tenants("name: a, " + limits, "name: free")
        self.key_a = self.key("a")
        self.open_tenants(*flags, **keys)
        return self.key_a

    def refused(self, r, kind, retry=True):
        self.assertEqual((r.status, r.json()["error"]["type"], r.code), (429, kind, "rate_limit_exceeded"), r.body)
        if retry:
            self.assertGreaterEqual(int(r.headers["retry-after"]) * 1000, int(r.headers["retry-after-ms"]))
            self.assertLess(int(r.headers["retry-after"]) * 1000 - int(r.headers["retry-after-ms"]), 1000)
        else:
            self.assertEqual(r.headers["x-should-retry"], "false")
            self.assertNotIn("retry-after", r.headers)

    def used_tokens(self, limit):
        """Tokens of the last minute and reserved, as a reply's headers say."""
        r = self.ask(self.key_a, [1], max_tokens=1)
        self.assertEqual(r.status, 200, r.body)
        return limit - int(r.headers["x-ratelimit-remaining-tokens"])

    def test_output(self):
        key = self.one("default-output-tokens: 7, max-output-tokens: 9")
        p = self.pair
        count = lambda r: (r.status, r.json()["usage"]["completion_tokens"])
        chat = lambda **more: p.call("POST", "/v1/chat/completions", dict({"model": p.name, "ignore_eos": True, "messages": [
            {"role": "user", "content": "x"}]}, **more), self.bearer(key))
        self.assertEqual(count(chat()), (200, 7))
        self.assertEqual(count(chat(max_tokens=9)), (200, 9))
        for field in ("max_tokens", "max_completion_tokens"):
            r = chat(**{field: 10})
            self.assertEqual((r.status, r.json()["error"]["param"]), (400, field))
        r = p.call("POST", "/v1/completions", {"model": p.name, "prompt": "x", "ignore_eos": True}, self.bearer(key))
        self.assertEqual(count(r), (200, 9))  # the default of 16, within the cap

    def test_requests_per_minute(self):
        """B88: 3 a minute, 10 at once, over both doors: 3 go."""
        key = self.one("requests-per-minute: 3")
        self.env["SLUICE_API_KEY"] = key

        def call(i):
            if i % 2 == 0:
                return self.ask(key, max_tokens=2).status == 200
            code, _, err = self.run_cli("chat", "hi", "--rpc", self.pair.rpc, "--max-tokens", "2")
            self.assertTrue(code == 0 or "Rate limit" in err, err)
            return code == 0
        self.assertEqual(sum(self.parallel(10, call)), 3)
        r = self.ask(key)
        self.refused(r, "requests")
        self.assertTrue(1 <= int(r.headers["retry-after"]) <= 61)
        self.assertEqual((r.headers["x-ratelimit-limit-requests"], r.headers["x-ratelimit-remaining-requests"]), ("3", "0"))
        self.assertNotIn("x-ratelimit-limit-tokens", r.headers)
        self.assertEqual(self.ask(key, model="nope").status, 404)  # what is refused before costs nothing
        self.assertTrue(self.ready("free"))

    def ready(self, tenant):
        key = self.key(tenant)
        return wait_until(lambda: self.ask(key, max_tokens=1).status == 200, "the new key")

    def test_in_flight(self):
        """B88: two at once, twenty asked."""
        key = self.one("max-in-flight: 2", worker=("--null-step-us", "30000"))
        p = self.pair
        body = p.completion_body(max_tokens=300, ignore_eos=True)
        conns = [p.open_stream("/v1/completions", body, self.bearer(key)) for _ in range(20)]
        try:
            statuses = sorted(c.head()[0] for c in conns)
            self.assertEqual(statuses, [200] * 2 + [429] * 18)
            self.refused(self.ask(key), "requests")
        finally:
            for c in conns:
                c.s.close()
        wait_until(lambda: self.ask(key, max_tokens=1).status == 200, "the two places to be free again")
        p.wait_idle()
        for body in ("{", '{"model": "%s"}' % p.name):  # what fails holds no place
            for _ in range(3):
                self.assertEqual(p.call("POST", "/v1/completions", body.encode(), self.bearer(key)).status, 400)
        self.assertEqual(self.ask(key, max_tokens=1).status, 200)

    def test_tokens_per_minute(self):
        """B88: reserved before, so five at once cannot all pass; settled to what was made."""
        key = self.one("tokens-per-minute: 400")
        got = self.parallel(5, lambda i: self.ask(key, [1, 2, 3], max_tokens=175, ignore_eos=True))
        self.assertEqual(sorted(r.status for r in got), [200] * 2 + [429] * 3)
        for r in got:
            if r.status == 429:
                self.refused(r, "tokens")
        self.assertEqual(self.used_tokens(400), 2 * 178 + 2)
        r = self.ask(key, [1], max_tokens=100)
        self.refused(r, "tokens")
        self.assertTrue(55 <= int(r.headers["retry-after"]) <= 61, r.headers)
        self.refused(self.ask(key, [1], max_tokens=600), "tokens", retry=False)  # more than any minute has

    def test_too_large_for_the_tenant(self):
        """B88's own figures: 100 a minute, 175 asked."""
        key = self.one("tokens-per-minute: 100")
        for r in self.parallel(5, lambda i: self.ask(key, max_tokens=175)):
            self.refused(r, "tokens", retry=False)
        self.assertEqual(self.used_tokens(100), 2)

    def test_stops_are_settled(self):
        key = self.one("tokens-per-minute: 100000")
        total = 0
        for n in (1, 2):
            r = self.ask(key, [5] * 10, n=n, max_tokens=500, seed=1)
            u = r.json()["usage"]
            self.assertEqual(r.status, 200)
            total += u["total_tokens"]
            self.assertLess(u["completion_tokens"], 500 * n + 1)
        self.assertEqual(self.used_tokens(100000), total + 2)

    def test_waiting(self):
        """With budget-wait-s a request waits its turn; one that leaves holds nothing."""
        key = self.one("max-in-flight: 1, budget-wait-s: 60, queue-room: 2", worker=("--null-step-us", "20000"))
        p = self.pair
        body = p.completion_body(max_tokens=400, ignore_eos=True)
        first = p.open_stream("/v1/completions", body, self.bearer(key))
        self.assertEqual(first.head()[0], 200)
        gone = p.open_stream("/v1/completions", body, self.bearer(key))
        second = p.open_stream("/v1/completions", p.completion_body(max_tokens=2), self.bearer(key))
        wait_until(lambda: p.metric("sluice:requests_live") == 3, "three requests")
        r = None

        def full():
            nonlocal r
            r = self.ask(key)
            return r.status == 429
        self.assertTrue(full())
        gone.s.close()
        wait_until(lambda: p.metric("sluice:requests_live") == 2, "the waiter that left")
        first.s.close()  # its place goes to the one that waits
        self.assertEqual(second.head()[0], 200)
        self.assertEqual(list(second.events())[-1], "DONE")
        second.s.close()
        p.wait_idle()

    def test_broken_off(self):
        """B90: thirty streams closed early pay for the prompt and what was made, once."""
        key = self.one("tokens-per-minute: 1000000", worker=("--null-step-us", "1000"))
        p = self.pair
        for i in range(30):
            with p.open_stream("/v1/completions", p.completion_body([7] * 20, max_tokens=400, ignore_eos=True), self.bearer(key)) as c:
                self.assertEqual(c.head()[0], 200)
                events = c.events()
                for _ in range(1 + i % 10):
                    next(events)
        p.wait_idle()
        made = p.metric("vllm:generation_tokens_total") + p.metric("vllm:prompt_tokens_total")
        self.assertGreaterEqual(made, 30 * 20 + 30)
        self.assertLess(made, 30 * 420)
        self.assertEqual(self.used_tokens(1000000), made + 2)
        with p.raw() as c:  # not streamed, closed at once
            c.request("POST", "/v1/completions", p.completion_body([7] * 20, max_tokens=400, ignore_eos=True), self.bearer(key))
        p.wait_idle()
        made = p.metric("vllm:generation_tokens_total") + p.metric("vllm:prompt_tokens_total")
        self.assertLessEqual(self.used_tokens(1000000), made + 2)

    def test_worker_killed(self):
        """A request that runs twice is paid once, and nothing stays reserved."""
        key = self.one("tokens-per-minute: 100000", worker=("--null-step-us", "10000"))
        p = self.pair
        with p.open_stream("/v1/completions", p.completion_body([9] * 10, max_tokens=60, ignore_eos=True), self.bearer(key)) as c:
            self.assertEqual(c.head()[0], 200)
            events = c.events()
            for _ in range(5):
                next(events)
            p.kill_worker()
            p.start_worker()
            self.assertEqual(list(events)[-1], "DONE")
        p.wait_idle()
        self.assertEqual(self.used_tokens(100000), 10 + 60 + 2)

    def test_money(self):
        key = self.one("money-per-day: 0.001, prompt-price: 1, output-price: 2")  # 2 x 500 output tokens and a few
        statuses = [self.ask(key, [1], max_tokens=120, ignore_eos=True).status for _ in range(5)]
        self.assertEqual(statuses, [200] * 4 + [429])
        r = self.ask(key, [1], max_tokens=120)
        self.assertEqual((r.code, r.headers["x-should-retry"]), ("insufficient_quota", "false"))
        self.assertNotIn("retry-after", r.headers)


if __name__ == "__main__":
    harness.main()
