"""The quick tier's end-to-end test: up, one chat, one batch, one stream, down."""
import json

from harness import E2ETest, main, marked


class Smoke(E2ETest):
    def test_all_doors_once(self):
        s = self.server().ready()
        code, out, err = self.run_cli("chat", "hello", "--rpc", s.rpc, "--max-tokens", "5", "--json")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["model"], "tiny")
        request = {"custom_id": "a", "method": "POST", "url": "/v1/completions",
                   "body": {"model": "tiny", "prompt": "b", "max_tokens": 5, "ignore_eos": True}}
        with open(self.path("in.jsonl"), "w") as f:
            f.write(json.dumps(request))
        code, out, err = self.run_cli("batch", "run", self.path("in.jsonl"), self.path("out.jsonl"), "--rpc", s.rpc,
                                      "--json")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["tokens"]["completion"], 5)
        events = list(s.sse("/v1/completions", {"model": "tiny", "prompt": "b", "max_tokens": 5, "ignore_eos": True}))
        self.assertEqual([c["finish_reason"] for e in events for c in e["choices"]][-1], "length")
        self.assertEqual(s.http("GET", "/ready")[0], 200)
        self.assertEqual(s.stop(), 0)
        self.assertEqual(marked(self.mark), [])


if __name__ == "__main__":
    main()
