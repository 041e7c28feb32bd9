"""The same request at both doors gives the same answer: HTTP, and RPC by way of the command line."""
import json

import harness
from api_rig import ApiTest, text_of


class Doors(ApiTest):
    def setUp(self):
        super().setUp()
        self.p = self.open_pair(engine="cpu")

    def batch(self, bodies, url="/v1/chat/completions"):
        """Replies of the RPC door by number: (status, body)."""
        with open(self.path("in.jsonl"), "w") as f:
            for i, body in enumerate(bodies):
                f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": body}) + "\n")
        code, out, err = self.run_cli("batch", "run", self.path("in.jsonl"), self.path("out.jsonl"), "--rpc", self.p.rpc,
                                      "--class", "realtime", "--quiet")
        self.assertIn(code, (0, 2), err)
        with open(self.path("out.jsonl")) as f:
            rows = [json.loads(line) for line in f]
        return {int(r["custom_id"]): (r["response"]["status_code"], r["response"]["body"]) for r in rows}

    def same(self, bodies, url):
        rpc = self.batch(bodies, url)
        for i, body in enumerate(bodies):
            http = self.p.call("POST", url, body)
            status, got = rpc[i]
            self.assertEqual(status, http.status, body)
            want = http.json()
            for reply in (got, want):  # what the cache had by then is not part of the answer
                if reply.get("usage"):
                    reply["usage"]["prompt_tokens_details"].pop("cached_tokens")
            for key in ("choices", "usage", "error", "object", "model"):
                self.assertEqual(got.get(key), want.get(key), (key, body))

    def test_chat(self):
        p = self.p
        self.same([p.chat_body("one"), p.chat_body("two \u20ac \0 x", seed=4, temperature=1, n=2),
                   p.chat_body("three", logprobs=True, top_logprobs=5, max_tokens=5), p.chat_body("four", max_tokens=5.0),
                   p.chat_body("five", temperature=9), p.chat_body("six", model="other"), p.chat_body("seven", stop=[]),
                   p.chat_body("eight", messages=[]), p.chat_body("nine", logit_bias={"300": 1}),
                   p.chat_body("ten", top_p=0.9, seed=-1, temperature=0.7, stop=["e"])], "/v1/chat/completions")

    def test_completions(self):
        p = self.p
        self.same([p.completion_body("one"), p.completion_body([1, 2, 3]), p.completion_body(["a", "b"], n=2, seed=1, temperature=1),
                   p.completion_body("echo", echo=True, logprobs=2, max_tokens=0), p.completion_body([300]),
                   p.completion_body([4294967297]), p.completion_body(""), p.completion_body([1] * 2048)], "/v1/completions")

    def test_streams(self):
        """The deltas of `sluice chat` are the events of the HTTP stream."""
        p = self.p
        for seed in range(4):
            code, out, err = self.run_cli("chat", "hello there", "--rpc", p.rpc, "--raw", "--max-tokens", "60", "--seed", str(seed))
            self.assertEqual(code, 0, err)
            body = {"model": p.name, "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 60, "seed": seed}
            self.assertEqual(out, text_of(p.stream("/v1/chat/completions", body)))


if __name__ == "__main__":
    harness.main()
