#!/usr/bin/env python3
"""Servers with settings drawn at random, requests in random company: classes mixed, clients that leave in the middle,
a worker that is killed. What is answered is what the request gives alone.

usage: exact_random.py tiny [SERVERS]     SLUICE_SEED=N repeats a run
"""
import os
import random
import signal
import sys
import threading
import time

import prompts
import replies
import servers

SERVERS = 10
ROUNDS = 3
SEED = int(os.environ.get("SLUICE_SEED", str(random.randrange(1 << 31))))


def settings(rng):
    """Flags of a server. What disturbs leaves room to get on: a known sequence fits into three steps."""
    flags = {"--prefill-chunk": rng.choice((180, 256, 512)), "--max-seqs": rng.choice((1, 2, 5, 16, 40)),
             "--threads": rng.choice((1, 2)), "--kv-tokens": rng.choice((560, 800, 1024, 8192))}
    if servers.has_avx2():
        flags["--kernel"] = rng.choice(("scalar", "avx2"))
    if rng.random() < 0.5:
        flags["--debug-chaos"] = rng.randrange(1, 1 << 30)
    if rng.random() < 0.7:
        flags["--debug-preempt-every"] = rng.randrange(5, 40)
        flags["--debug-park-every"] = rng.randrange(2, 6)
        flags["--debug-drop-every"] = rng.randrange(4, 9)
    else:
        flags["--prefill-chunk"] = rng.choice((1, 3, 16, 50))
    return [str(x) for pair in flags.items() for x in pair]


def passers_by(server, requests, rng, done):
    """Streams that are read for a while and left."""
    while not done.is_set():
        body = dict(rng.choice(requests)[1])
        body["service_tier"] = rng.choice(("flex", "default"))
        leave_after = rng.randrange(0, 20)
        try:
            s = replies.Stream(server.port, body, seen=lambda s, d: len(s.events) > leave_after and s.close())
            if leave_after == 0:
                s.close()
            s.run()
        except OSError:
            pass


def one_server(model, requests, alone, rng):
    flags, wrong, compared = settings(rng), 0, 0
    kill = rng.random() < 0.4
    print("%s%s" % (" ".join(flags), ", worker killed" if kill else ""), flush=True)
    with servers.Up(model, *flags, "--no-worker-timeout-s", "60") as s:
        done = threading.Event()
        crowd = [threading.Thread(target=passers_by, args=(s, requests, random.Random(rng.random()), done), daemon=True)
                 for _ in range(3)]
        for t in crowd:
            t.start()
        for _ in range(ROUNDS):
            tiers = [rng.choice(("flex", "default")) for _ in requests]
            jobs = [lambda b=dict(body, service_tier=t): replies.ask(s.port, b)
                    for (_, body), t in zip(requests, tiers)]
            rng.shuffle(order := list(range(len(jobs))))
            if kill:
                killer = threading.Timer(rng.random() * 0.3, os.kill, (s.children()["worker"], signal.SIGKILL))
                killer.start()
            got = replies.together([jobs[i] for i in order])
            if kill:
                killer.join()
                s.ready()
            for i, reply in zip(order, got):
                compared += 1
                if replies.structure(reply) != replies.structure(alone[i]):
                    wrong += 1
                    print("WRONG  seed %d: %s: %s" % (SEED, requests[i][0], replies.difference(
                        replies.structure(reply), replies.structure(alone[i]))))
        done.set()
        for t in crowd:
            t.join()
        servers.nothing_left(s)
    return compared, wrong


def main():
    model = servers.model_file(sys.argv[1])
    rng = random.Random(SEED)
    n = int(sys.argv[2]) if len(sys.argv) > 2 else SERVERS
    print("seed %d" % SEED)
    began = time.monotonic()
    with servers.Up(model) as s:
        requests = prompts.make(s.port, 400, 40)
        alone = [replies.ask(s.port, body) for _, body in requests]
    compared = wrong = 0
    for _ in range(n):
        c, w = one_server(model, requests, alone, rng)
        compared, wrong = compared + c, wrong + w
    print("%d servers, %d replies compared, %d wrong, %.1f s" % (n, compared, wrong, time.monotonic() - began))
    return 1 if wrong or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
