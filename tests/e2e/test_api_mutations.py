"""Random damage to good requests while a healthy stream runs: an answer in time, never a 5xx, and the stream's bytes
are those of a quiet server. A failing case is rerun with SEED=number.
"""
import json
import os
import random
import threading

import harness
from api_rig import ApiTest

SEED = int(os.environ.get("SEED", "20240607"))
PIECES = [b"\x00", b"\xff", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0000", b"\\ud83d", b"null", b"-", b"1e999", b"9" * 30,
          b",", b":", b"true", b"\r\n", b"\xf0\x9f\x98", b'{"a":' * 70, b"[" * 300, b" "]


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and i < len(data):
            data[i] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[i:i] = rng.choice(PIECES)
        elif kind == 2:
            del data[i:i + rng.randint(1, 12)]
        elif kind == 3:
            j = rng.randrange(len(data) + 1)
            data[i:i] = data[min(i, j):max(i, j)][:200]
        elif kind == 4:
            data[i:i + 4] = rng.choice(PIECES)
        else:
            del data[i:]
    return bytes(data)


class Mutations(ApiTest):
    def setUp(self):
        super().setUp()
        self.p = self.open_pair("--max-header-bytes", "8k", worker=("--null-step-us", "2000"))
        print("seed %d" % SEED)
        p = self.p
        self.good = [
            ("/v1/chat/completions", p.chat_body("a question \u20ac \U0001f600", max_tokens=4, stop=["x", "yy"], seed=1, top_p=0.5)),
            ("/v1/chat/completions", p.chat_body(max_tokens=4, stream=True, stream_options={"include_usage": True}, n=2)),
            ("/v1/completions", p.completion_body(["a", [1, 2, 3]], echo=True, logprobs=3, max_tokens=2, logit_bias={"5": -1.5})),
            ("/v1/chat/completions", {"model": p.name, "max_tokens": 3, "messages": [
                {"role": "system", "content": [{"type": "text", "text": "s"}]}, {"role": "assistant", "content": None},
                {"role": "user", "content": "u"}]}),
            ("/tokenize", {"prompt": "text", "return_token_strs": True}), ("/detokenize", {"tokens": [1, 2, 299]})]

    def beside(self, damage):
        """Runs `damage` while healthy streams run, and compares their bytes."""
        path, body = "/v1/chat/completions", self.p.chat_body(max_tokens=400, seed=3, temperature=1, ignore_eos=True, logprobs=True)
        shown = lambda events: [e if isinstance(e, str) else e["choices"] for e in events]
        want = shown(self.p.stream(path, body))
        stop, wrong, runs = threading.Event(), [], []

        def follow():
            while not stop.is_set():
                got = shown(self.p.stream(path, body))
                runs.append(1)
                if got != want:
                    wrong.append(got)

        t = threading.Thread(target=follow)
        t.start()
        try:
            damage()
        finally:
            stop.set()
            t.join()
        self.assertEqual(wrong, [])
        self.assertGreater(len(runs), 0)
        self.p.wait_idle()
        self.assertEqual(self.p.chat(max_tokens=2).status, 200)

    def test_bodies(self):
        def damage():
            statuses = {}
            for k in range(200):
                rng = random.Random(SEED + k)
                path, body = rng.choice(self.good)
                data = mutate(rng, json.dumps(body, ensure_ascii=rng.random() < 0.5).encode())
                r = self.p.call("POST", path, data)
                self.assertIn(r.status, (200, 400, 404, 413), (SEED + k, data[:300], r.body[:200]))
                if r.status != 200:
                    self.assertEqual(sorted(r.json()["error"]), ["code", "message", "param", "type"])
                statuses[r.status] = statuses.get(r.status, 0) + 1
            print("statuses", statuses)
            self.assertGreater(statuses[400], 50)
        self.beside(damage)

    def test_heads(self):
        """Damage anywhere in the request; the client leaves without waiting for an answer that may never come."""
        def damage():
            for k in range(200):
                rng = random.Random(SEED + 1000 + k)
                path, body = rng.choice(self.good)
                data = json.dumps(body).encode()
                head = "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Request-Id: r%d\r\nContent-Length: %d\r\n\r\n"
                with self.p.raw() as c:
                    try:
                        c.send(mutate(rng, (head % (path, k, len(data))).encode()) + data)
                    except OSError:
                        pass  # the server may close at once
        self.beside(damage)


if __name__ == "__main__":
    harness.main()
