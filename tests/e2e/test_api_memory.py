"""The n-th allocation of the gateway fails, for many n: at start it ends with one clear line; later one request gets
a 503 (or its stream an error), and everything after it is served.
"""
import json
import os

import harness
from api_rig import GATEWAY, ApiTest, Pair
from harness import TINY, Process, wait_until


class Memory(ApiTest):
    def start_failing(self, n):
        """The gateway, or None when it ended at start for want of memory."""
        state = self.path("probe%d" % n)
        argv = [GATEWAY, "--model", TINY, "--http", "127.0.0.1:0", "--rpc", "tcp://127.0.0.1:0", "--workers-endpoint",
                "ipc://%s.link" % state, "--state", state, "--debug-fail-alloc", str(n)]
        p = Process(argv, self.env)
        known = os.path.join(state, "gateway.json")
        wait_until(lambda: p.popen.poll() is not None or os.path.exists(known), "a gateway, or its end")
        if p.popen.poll() is not None:
            self.assertEqual(p.wait(), 3, p.tail())
            self.assertRegex("\n".join(p.err), "error gateway: .*memory")
            return False
        p.popen.kill()
        p.wait()
        return True

    def test_start(self):
        started = [self.start_failing(n) for n in range(1, 40)]
        self.assertIn(False, started)
        self.assertTrue(started[-1])

    def one(self, p, path, body):
        with p.raw() as c:
            c.request("POST", path, body)
            status, headers = c.head()
            if status is None:
                return "closed"
            if "event-stream" not in headers["content-type"]:
                data = c.exactly(int(headers["content-length"]))
                self.assertIn(status, (200, 503), data)
                if status == 503:
                    self.assertEqual(json.loads(data)["error"]["code"], "out_of_memory")
                return status
            try:
                return list(c.events())[-1]
            except (AssertionError, ValueError, OSError):
                return "closed"

    def test_requests(self):
        outcomes = []
        for n in list(range(30, 130, 3)) + list(range(130, 400, 17)):
            if not self.start_failing(n):
                continue
            p = Pair(self, "--debug-fail-alloc", str(n), engine="null")
            bodies = [("/v1/chat/completions", p.chat_body(max_tokens=3, n=2, logprobs=True, top_logprobs=2, stop=["zz"])),
                      ("/v1/completions", p.completion_body(["a", [1, 2]], echo=True, max_tokens=2, logit_bias={"5": 1})),
                      ("/v1/chat/completions", p.chat_body(max_tokens=20, stream=True)), ("/tokenize", {"prompt": "x"})]
            for path, body in bodies * 2:
                outcomes.append(str(self.one(p, path, body)))
            p.wait_idle()
            self.assertEqual([str(self.one(p, *b)) for b in bodies], ["200", "200", "DONE", "200"], n)
            for q in (p.worker, p.gateway):
                q.popen.kill()
                q.wait()
        hit = len([o for o in outcomes if o not in ("200", "DONE")])
        print("%d requests, %d of them without memory" % (len(outcomes), hit))
        self.assertGreater(hit, 5)


if __name__ == "__main__":
    harness.main()
