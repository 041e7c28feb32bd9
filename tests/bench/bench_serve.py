#!/usr/bin/env python3
"""What a chat user feels beside a full batch: time to first token and gap between tokens, alone and beside 15 batch
requests, and what the batch makes of the machine, alone and beside the chat.

usage: bench_serve.py [--json] [--requests N] [--batch N] [--model FILE] [--threads N] [--seed N]

Arms B A M M A B (batch alone, real-time alone, mixed), each with prompts of its own, so that a slow minute of the
machine hits all alike; both halves of an arm are shown. Placement on two cores or more: the worker on core 0, gateway
and this driver on core 1. Real-time: 16 to 32 tokens in, 4 to 12 out, one after the other with random pauses. Batch:
200 tokens in, 200 out, a new one for each that ends. Needs a build (SLUICE_BUILD_DIR) and the real model; else 77.
Figures mean something only with machine and date beside; ratios less so.
"""
import argparse
import datetime
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "exact"))
import servers  # noqa: E402

IDS_FROM, IDS_TO = 1000, 40000  # ordinary tokens of the real model
BATCH_IN, BATCH_OUT = 200, 200


def open_stream(port, prompt, out, tier):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    c.request("POST", "/v1/completions",
              json.dumps({"model": servers.NAME, "prompt": prompt, "max_tokens": out, "ignore_eos": True,
                          "temperature": 0, "stream": True, "service_tier": tier}),
              {"Content-Type": "application/json"})
    return c


class Batch:
    """N streams that are never fewer; counts tokens as they come."""

    def __init__(self, port, n, rng):
        self.port, self.leaving, self.tokens = port, False, 0
        self.lock = threading.Lock()
        self.begun = threading.Semaphore(0)
        self.seeds = [rng.random() for _ in range(n)]
        self.threads = [threading.Thread(target=self.client, args=(s,), daemon=True) for s in self.seeds]
        for t in self.threads:
            t.start()
        for _ in self.threads:
            self.begun.acquire()

    def client(self, seed):
        rng = random.Random(seed)
        first = True
        while not self.leaving:
            prompt = [rng.randrange(IDS_FROM, IDS_TO) for _ in range(BATCH_IN)]
            # The first ones end at different times, so that prompts and outputs overlap from then on.
            c = open_stream(self.port, prompt, rng.randrange(20, BATCH_OUT) if first else BATCH_OUT, "flex")
            for line in c.getresponse():
                if line.startswith(b'data: {"'):
                    with self.lock:
                        self.tokens += 1
                    if first:
                        first = False
                        self.begun.release()
                if self.leaving:
                    break
            c.close()

    def stop(self):
        self.leaving = True
        for t in self.threads:
            t.join()


def realtime(port, n, rng):
    """n requests one after the other -> TTFTs, gaps, in ms."""
    ttft, gaps = [], []
    for _ in range(n):
        time.sleep(rng.uniform(0.02, 0.2))
        prompt = [rng.randrange(IDS_FROM, IDS_TO) for _ in range(rng.randrange(16, 33))]
        last = time.perf_counter()
        c = open_stream(port, prompt, rng.randrange(4, 13), "default")
        came = []
        for line in c.getresponse():
            if line.startswith(b'data: {"'):
                now = time.perf_counter()
                came.append((now - last) * 1e3)
                last = now
        c.close()
        if not came:
            raise RuntimeError("a request came back empty")
        ttft.append(came[0])
        gaps += came[1:]
    return ttft, gaps


def arm(port, name, args, rng):
    batch = Batch(port, args.batch, rng) if name in "BM" else None
    began, tokens = time.perf_counter(), batch.tokens if batch else 0
    ttft, gaps = realtime(port, args.requests, rng) if name in "AM" else ([], [])
    if name == "B":
        time.sleep(args.batch_seconds)
    seconds = time.perf_counter() - began
    made = batch.tokens - tokens if batch else 0
    if batch:
        batch.stop()
    return {"arm": name, "ttft_ms": ttft, "gap_ms": gaps, "batch_tokens_s": made / seconds if batch else None}


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def summary(arms):
    """Both halves of each arm, and both together."""
    out = {}
    for name in "AMB":
        halves = [a for a in arms if a["arm"] == name]
        ttft, gaps = [sum((a[k] for a in halves), []) for k in ("ttft_ms", "gap_ms")]
        row = {}
        if name != "B":
            row = {"n": len(ttft), "ttft_p50_ms": quantile(ttft, 0.5), "ttft_p99_ms": quantile(ttft, 0.99),
                   "gap_p50_ms": quantile(gaps, 0.5), "gap_p99_ms": quantile(gaps, 0.99),
                   "ttft_p50_halves_ms": [quantile(a["ttft_ms"], 0.5) for a in halves]}
        if name != "A":
            rates = [a["batch_tokens_s"] for a in halves]
            row["batch_tokens_s"] = sum(rates) / len(rates)
            row["batch_tokens_s_halves"] = rates
        out[name] = row
    return out


def machine():
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    git = subprocess.run(["git", "-C", servers.harness.SOURCE, "rev-parse", "--short", "HEAD"], capture_output=True,
                         text=True)
    return {"cpu": model, "cores": os.cpu_count(), "date": datetime.date.today().isoformat(),
            "commit": git.stdout.strip() or "unknown"}


def table(r):
    a, m, b = (r["arms"][k] for k in "AMB")
    print("%(cpu)s, %(cores)d cores, %(date)s, commit %(commit)s" % r["machine"])
    print("%d real-time requests an arm, %d batch requests beside" % (a["n"], r["batch"]))
    print("%-22s %10s %10s %10s" % ("", "alone", "beside", "ratio"))
    for key, text in (("ttft_p50_ms", "TTFT p50, ms"), ("ttft_p99_ms", "TTFT p99, ms"),
                      ("gap_p50_ms", "gap p50, ms"), ("gap_p99_ms", "gap p99, ms")):
        print("%-22s %10.1f %10.1f %10.2f" % (text, a[key], m[key], m[key] / a[key]))
    print("%-22s %10.1f %10.1f %10.2f" % ("batch tokens/s", b["batch_tokens_s"], m["batch_tokens_s"],
                                          m["batch_tokens_s"] / b["batch_tokens_s"]))
    print("halves: TTFT p50 alone %s, beside %s; batch alone %s"
          % tuple(" and ".join("%.1f" % v for v in x) for x in
                  (a["ttft_p50_halves_ms"], m["ttft_p50_halves_ms"], b["batch_tokens_s_halves"])))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    p.add_argument("--requests", type=int, default=60, help="real-time requests of each half arm (60)")
    p.add_argument("--batch", type=int, default=15, help="batch requests that run (15)")
    p.add_argument("--batch-seconds", type=float, default=20, help="length of a batch-only half arm (20)")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model")
    args = p.parse_args()
    model = args.model or servers.model_file("real")
    cores = sorted(os.sched_getaffinity(0))
    place = ["--cpus", "gateway=%d,worker=%d" % (cores[1], cores[0])] if len(cores) > 1 else []
    if args.threads > 1:
        place = ["--cpus", servers.spread()]
    rng = random.Random(args.seed)
    with servers.Up(model, "--threads", str(args.threads), *place) as s:
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[1]})
        realtime(s.port, 5, rng)  # warms up
        arms = [arm(s.port, name, args, rng) for name in "BAMMAB"]
    result = {"machine": machine(), "threads": args.threads, "batch": args.batch, "seed": args.seed,
              "arms": summary(arms)}
    if args.json:
        print(json.dumps(result))
    else:
        table(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
