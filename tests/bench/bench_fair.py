#!/usr/bin/env python3
"""Fairness between backlogged tenants through HTTP: what each was served against its weight.

    python3 tests/bench/bench_fair.py [--model FILE] [--only NAME] [--seed 1]

With a model the real engine (windows of 40 requests of the lightest tenant, within 5 %), without one the null engine (150
requests, 2 %; 100 tenants too). Every tenant keeps a backlog of batch requests; served = prompt and output tokens as
clients receive them. A window lasts at least 20 s. Idle: time in which the worker ran no step, at most 2 %.
Exit: 0 all held, 1 one missed.
"""
import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
import harness  # noqa: E402

SHORT, LONG = ((16, 48), (4, 16)), ((96, 160), (24, 48))
# name, weights, which have long requests, parallel calls of each
ROWS = (("2 tenants 1:1", (1, 1), (), 40), ("2 tenants 4:1", (4, 1), (), 40),
        ("2 tenants 4:1, short against long", (4, 1), (1,), 40), ("5 tenants 1:1", (1,) * 5, (), 24),
        ("5 tenants 4:1, two long", (4, 1, 1, 1, 1), (1, 3), 24))
MANY = ("100 tenants 4:1, each seventh long", (4,) + (1,) * 99, tuple(range(1, 100, 7)), 6)


class Tenant:
    def __init__(self, name, weight, is_long):
        self.name, self.weight, self.lengths = name, weight, LONG if is_long else SHORT
        self.key = None
        self.ended = 0
        self.events = []  # (time, tokens)


class Run:
    def __init__(self, row, a, server, tenants):
        self.row, self.a, self.server, self.tenants = row, a, server, tenants
        self.rng = random.Random(a.seed)
        self.stop = False

    async def call(self, t):
        (lo, hi), (out_lo, out_hi) = t.lengths
        n = self.rng.randint(lo, hi)
        body = json.dumps({"model": self.server.model, "prompt": [self.rng.randint(5, 250) for _ in range(n)],
                           "max_tokens": self.rng.randint(out_lo, out_hi), "ignore_eos": True, "stream": True,
                           "service_tier": "flex"}).encode()
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port, limit=1 << 20)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (t.key.encode(), len(body)) + body)
        first = True
        try:
            line = await reader.readline()
            if b" 200 " not in line:
                raise AssertionError(line)
            async for line in reader:
                if line.startswith(b"data: [DONE]"):
                    t.ended += 1
                    return
                if line.startswith(b"data: "):
                    t.events.append((time.monotonic(), 1 + (n if first else 0)))
                    first = False
        finally:
            writer.close()

    async def client(self, t):
        while not self.stop:
            await self.call(t)

    def busy(self):
        return self.server.metric("sluice:worker_busy_seconds_total")

    async def until(self, ended, at_least):
        while any(t.ended < ended[t.name] for t in self.tenants) or time.monotonic() < at_least:
            await asyncio.sleep(0.05)

    async def measure(self):
        clients = [asyncio.create_task(self.client(t)) for t in self.tenants for _ in range(self.row[3])]
        await self.until({t.name: 10 for t in self.tenants}, 0)
        self.begin, busy = time.monotonic(), await asyncio.to_thread(self.busy)
        window = 40 if self.a.model else 150
        await self.until({t.name: t.ended + window for t in self.tenants}, self.begin + 20)
        self.end = time.monotonic()
        self.idle = 1 - (await asyncio.to_thread(self.busy) - busy) / (self.end - self.begin)
        self.stop = True
        for c in clients:
            c.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    def error(self):
        served = [sum(n for at, n in t.events if self.begin <= at < self.end) for t in self.tenants]
        total, weights = sum(served), sum(t.weight for t in self.tenants)
        return max(abs(s / (total * t.weight / weights) - 1) for s, t in zip(served, self.tenants))


class Here:
    """What harness.Server asks of a test."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="sluice-fair-")
        self.env = dict(os.environ)


def one(row, a):
    here = Here()
    path = os.path.join(here.dir, "tenants.yaml")
    tenants = [Tenant("t%d" % i, w, i in row[2]) for i, w in enumerate(row[1])]
    with open(path, "w") as f:
        f.write("tenants:\n" + "".join("  - {name: %s, weight: %d}\n" % (t.name, t.weight) for t in tenants))
    for t in tenants:
        t.key = subprocess.run([harness.SLUICE, "keys", "add", "--tenant", t.name, "--tenants", path], env=here.env,
                               check=True, capture_output=True, text=True).stdout.strip()
    flags = ["--threads", "1", "--tenants", path, "--open-metrics", "--max-seqs", "16", "--max-connections", "2000"]
    if not a.model:
        flags += ["--engine", "null", "--null-step-us", "4000", "--null-token-us", "200"]
    if len(os.sched_getaffinity(0)) > 1:
        flags += ["--cpus", "gateway=1,worker=0"]
    server = harness.Server(here, *flags, **({"model": a.model} if a.model else {}))
    try:
        server.ready()
        run = Run(row, a, server, tenants)
        asyncio.run(run.measure())
        bar = 0.05 if a.model else 0.02
        ok = run.error() <= bar and run.idle < 0.02
        print("%-36s worst %.2f %% from its weight (<= %.0f), idle %.2f %% (< 2), %.0f s, %d answers  %s" %
              (row[0], 100 * run.error(), 100 * bar, 100 * run.idle, run.end - run.begin, sum(t.ended for t in tenants),
               "held" if ok else "MISSED"), flush=True)
        return ok
    finally:
        server.signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(here.dir, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--model", help="GGUF file: the real engine (default: null)")
    p.add_argument("--only", help="rows whose name holds this")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rows = [r for r in ROWS + (() if a.model else (MANY,)) if a.only is None or a.only in r[0]]
    return 0 if all([one(r, a) for r in rows]) else 1


if __name__ == "__main__":
    sys.exit(main())
