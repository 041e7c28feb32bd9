#!/usr/bin/env python3
"""The same request, the same bytes: alone, among others, in every configuration of the server.

usage: exact_matrix.py tiny|real
"""
import json
import os
import subprocess
import sys
import time

import prompts
import replies
import servers


class Matrix:
    def __init__(self, model):
        self.model = model
        self.requests, self.alone = [], []
        self.compared = self.wrong = 0

    def up(self, *flags):
        return servers.Up(self.model, *flags)

    def check(self, what, name, got, want):
        self.compared += 1
        if got != want:
            self.wrong += 1
            print("WRONG  %s: %s: %s" % (what, name, replies.difference(got, want)))

    def learn(self, server, long, out):
        """The answers alone, one after the other, on a plain server."""
        self.requests = prompts.make(server.port, long, out)
        self.alone = [replies.ask(server.port, body) for _, body in self.requests]
        texts = {a for a in self.alone}
        if len(texts) != len(self.alone):
            raise RuntimeError("two different requests have one answer: nothing would be shown")

    def among(self, what, server, times=1):
        """All at once, each so many times."""
        requests, alone = self.requests * times, self.alone * times
        got = replies.together([lambda b=body: replies.ask(server.port, b) for _, body in requests])
        for (name, _), reply, want in zip(requests, got, alone):
            self.check(what, name, reply, want)

    def one_by_one(self, what, server, indexes):
        for i in indexes:
            self.check(what, self.requests[i][0], replies.ask(server.port, self.requests[i][1]), self.alone[i])

    def streamed(self, what, server):
        got = replies.together([lambda b=body: replies.Stream(server.port, b).run() for _, body in self.requests])
        for (name, _), r, want in zip(self.requests, got, self.alone):
            self.check(what, name, (r.end, replies.joined(r.events)), ("done", replies.structure(want)))

    def over_rpc(self, what, server):
        lines, out = os.path.join(server.dir, "in.jsonl"), os.path.join(server.dir, "out.jsonl")
        with open(lines, "w", encoding="utf-8") as f:
            for i, (_, body) in enumerate(self.requests):
                f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": replies.path_of(body),
                                    "body": body}) + "\n")
        subprocess.run([servers.harness.SLUICE, "batch", "run", lines, out, "--rpc", server.rpc, "--quiet"], check=True,
                       stdin=subprocess.DEVNULL)
        got = {}
        with open(out, encoding="utf-8") as f:
            for line in f:
                line = json.loads(line)
                got[int(line["custom_id"])] = line["response"]["body"]
        for i, (name, _) in enumerate(self.requests):
            want = json.loads(self.alone[i])
            reply = {k: got[i].get(k) for k in want} if i in got else None
            if reply and reply["usage"]:
                reply["usage"]["prompt_tokens_details"]["cached_tokens"] = 0  # as in replies.strip
            self.check(what, name, replies.as_floats(reply), replies.as_floats(want))


def tiny(m):
    with m.up() as s:
        m.learn(s, long=500, out=32)
        everyone = range(len(m.requests))
        m.one_by_one("alone again", s, everyone)
        m.among("among all others", s, times=2)
        m.streamed("streamed", s)
        m.over_rpc("over RPC", s)
    kernels = ["scalar", "avx2"] if servers.has_avx2() else ["scalar"]
    for kernel in kernels:
        for threads in (1, 2):
            for chunk in (1, 7, 64, 512):
                flags = ["--kernel", kernel, "--threads", str(threads), "--prefill-chunk", str(chunk)]
                with m.up(*flags) as s:
                    m.among(" ".join(flags), s)
                    m.one_by_one(" ".join(flags) + ", alone", s, (6, 8, 15))
    for seed in (1, 2, 3):
        with m.up("--debug-chaos", str(seed), "--threads", "2") as s:
            m.among("chaos %d" % seed, s)
    small_pool(m, 768)


def small_pool(m, tokens):
    with m.up("--kv-tokens", str(tokens)) as s:
        rounds = 0
        while rounds == 0 or (s.metric("vllm:num_preemptions_total") <= 20 and rounds < 150):
            m.among("--kv-tokens %d" % tokens, s, times=2)
            rounds += 1
        n = s.metric("vllm:num_preemptions_total")
        print("--kv-tokens %d: %d preemptions in %d rounds" % (tokens, n, rounds))
        m.check("a small pool preempts", "more than 20 times", n > 20, True)


def real(m):
    fast = "avx2" if servers.has_avx2() else "scalar"
    with m.up("--kernel", fast, "--threads", "1") as s:
        m.learn(s, long=400, out=24)
        m.among("among all others", s)
        m.streamed("streamed", s)
        m.over_rpc("over RPC", s)
    for flags in (["--threads", "2", "--prefill-chunk", "512"], ["--threads", "1", "--prefill-chunk", "64"],
                  ["--threads", "2", "--prefill-chunk", "7", "--debug-chaos", "7"]):
        with m.up("--kernel", fast, *flags) as s:
            m.among(" ".join(flags), s)
    with m.up("--kernel", fast, "--threads", "2", "--prefill-chunk", "1") as s:
        m.one_by_one("--prefill-chunk 1", s, (0, 4, 8, 12))
    small_pool(m, 768)
    with m.up("--kernel", "scalar", "--threads", "2") as s:
        m.one_by_one("--kernel scalar", s, (0, 7))


def main():
    which = sys.argv[1]
    m = Matrix(servers.model_file(which))
    began = time.monotonic()
    {"tiny": tiny, "real": real}[which](m)
    print("%d replies compared, %d wrong, %.1f s" % (m.compared, m.wrong, time.monotonic() - began))
    return 1 if m.wrong or m.compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
