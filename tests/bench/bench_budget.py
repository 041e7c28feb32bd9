#!/usr/bin/env python3
"""Token budgets through HTTP: 200 calls at a time on a limit of tokens per minute, waiting on, with clients that go
away and workers that are killed.

    python3 tests/bench/bench_budget.py [--limit 10000] [--minutes 4] [--parallel 200] [--seed 1]

Every token that a client received is noted with its time (a prompt with the first token). Bars: no sliding window of 60 s
holds more than the limit; use of the limit from the second minute on at least 97 %; nothing reserved when all have
ended. Null engine, standard library only. Exit: 0 all held, 1 one missed.
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


class Load:
    def __init__(self, server, key, a):
        self.server, self.key, self.a = server, key, a
        self.rng = random.Random(a.seed)
        self.events = []  # (time, tokens)
        self.done = self.cut = self.broken = self.refused = 0
        self.until = time.monotonic() + 60 * a.minutes

    def body(self):
        n_in, n_out = self.rng.randint(8, 40), self.rng.randint(20, 160)
        prompt = [self.rng.randint(5, 250) for _ in range(n_in)]
        return n_in, json.dumps({"model": self.server.model, "prompt": prompt, "max_tokens": n_out, "ignore_eos": True,
                                 "stream": True, "stream_options": {"include_usage": True,
                                                                    "continuous_usage_stats": True}}).encode()

    async def call(self):
        n_in, body = self.body()
        cut_at = self.rng.randint(1, 60) if self.rng.random() < 0.1 else None
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port, limit=1 << 20)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (self.key.encode(), len(body)) + body)
        got, whole = 0, False
        try:
            status = int((await reader.readline()).split()[1])
            if status != 200:
                self.refused += 1
                return
            async for line in reader:
                if line.startswith(b"data: [DONE]"):
                    whole = True
                    break
                if not line.startswith(b"data: {"):
                    continue
                total = json.loads(line[6:])["usage"]["total_tokens"]  # an event may hold several tokens, or half a letter
                self.events.append((time.monotonic(), total - got))
                got = total
                if cut_at is not None and got >= n_in + cut_at:
                    self.cut += 1
                    return
            self.done += whole
            self.broken += not whole
        except (OSError, IndexError, ValueError):
            self.broken += 1
        finally:
            writer.close()

    async def one(self):
        while time.monotonic() < self.until:
            await self.call()

    async def killer(self):
        """Twice: in the first and in the third quarter."""
        for share in (0.3, 0.7):
            await asyncio.sleep(max(0, self.until - 60 * self.a.minutes * (1 - share) - time.monotonic()))
            worker = self.server.children().get("worker")
            if worker:
                os.kill(worker, signal.SIGKILL)

    async def run(self):
        await asyncio.gather(self.killer(), *[self.one() for _ in range(self.a.parallel)])


def most_in_a_window(events, seconds=60.0):
    most = total = at = 0
    for i, (t, n) in enumerate(events):
        total += n
        while events[at][0] <= t - seconds:
            total -= events[at][1]
            at += 1
        most = max(most, total)
    return most


def report(load, began, remaining, a):
    events = sorted(load.events)
    end = load.until
    steady = sum(n for t, n in events if began + 60 <= t <= end)
    use = steady / (a.limit * (end - began - 60) / 60)
    most = most_in_a_window(events)
    rows = [("most tokens in 60 s / limit", most / a.limit, most <= a.limit, "<= 1"),
            ("use from the second minute on", use, use >= 0.97, ">= 0.97"),
            ("reserved or used a minute after the end", a.limit - remaining, remaining == a.limit, "0")]
    print("%d answers, %d clients went away, %d streams broke, %d refused; %d tokens received" %
          (load.done, load.cut, load.broken, load.refused, sum(n for _, n in events)))
    for name, value, ok, bar in rows:
        print("%-42s %10.4f  %s  %s" % (name, value, bar, "held" if ok else "MISSED"))
    return 0 if all(r[2] for r in rows) else 1


class Here:
    """What harness.Server asks of a test."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="sluice-budget-")
        self.env = dict(os.environ)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--limit", type=int, default=10000, help="tokens per minute (10000)")
    p.add_argument("--minutes", type=float, default=4, help="of load (4)")
    p.add_argument("--parallel", type=int, default=200, help="calls at a time (200)")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    here = Here()
    tenants = os.path.join(here.dir, "tenants.yaml")
    with open(tenants, "w") as f:
        f.write("tenants:\n  - {name: a, tokens-per-minute: %d, budget-wait-s: 3600}\n" % a.limit)
    key = subprocess.run([harness.SLUICE, "keys", "add", "--tenant", "a", "--tenants", tenants], env=here.env, check=True,
                         capture_output=True, text=True).stdout.strip()
    server = harness.Server(here, "--engine", "null", "--threads", "1", "--tenants", tenants, "--open-metrics",
                            "--max-promises", "0", "--null-step-us", "2000", "--null-token-us", "50")
    try:
        server.ready()
        load, began = Load(server, key, a), time.monotonic()
        asyncio.run(load.run())
        time.sleep(61)
        status, head, _ = server.http("POST", "/v1/completions",
                                      {"model": server.model, "prompt": [9], "max_tokens": 1, "ignore_eos": True},
                                      {"Authorization": "Bearer " + key})
        remaining = int(head["x-ratelimit-remaining-tokens"]) + 2 if status == 200 else -1  # its own two
        return report(load, began, remaining, a)
    finally:
        server.signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(here.dir, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
