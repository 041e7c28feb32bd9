#!/usr/bin/env python3
"""Answers whose sequences were preempted, parked and dropped again and again equal their uninterrupted selves.

usage: exact_interrupt.py tiny|null|real     tiny and null: at least 1,000 of each kind, counted by the worker; real: 100
The null engine's tokens are a hash chained through the KV blocks, so a stale or foreign block shows at once.
"""
import sys
import time

import prompts
import replies
import servers

COUNTERS = {"preemptions": "vllm:num_preemptions_total", "parks": "sluice:steps_parked_total",
            "drops": "sluice:spans_dropped_total"}
# No two alike, so that the three meet in every order. A prompt must fit into the steps between two preemptions of a
# sequence that is alone at the end, or the switches, which know no mercy, keep it from ever answering.
SWITCHES = ["--debug-preempt-every", "5", "--debug-park-every", "3", "--debug-drop-every", "4"]
OFTEN = ["--debug-preempt-every", "3", "--debug-park-every", "2", "--debug-drop-every", "4"]
QUICK_NULL = ["--engine", "null", "--null-token-us", "1", "--null-step-us", "20"]


def counts(server):
    return {k: int(server.metric(v)) for k, v in COUNTERS.items()}


def ask_all(server, requests):
    return replies.together([lambda b=body: replies.ask(server.port, b) for _, body in requests])


def count_wrong(what, requests, got, want):
    wrong = 0
    for (name, _), g, w in zip(requests, got, want):
        if g != w:
            wrong += 1
            print("WRONG  %s: %s: %s" % (what, name, replies.difference(g, w)))
    return wrong


def interrupted(model, flags, requests, alone, least, rounds_max):
    """Rounds of all requests at once until each counter is at least `least`. -> compared, wrong"""
    compared = wrong = 0
    with servers.Up(model, *flags) as s:
        seen = counts(s)
        for _ in range(rounds_max):
            got = ask_all(s, requests)
            compared += len(got)
            wrong += count_wrong(" ".join(flags), requests, got, alone)
            seen = counts(s)  # of the last STATUS: never too many
            if min(seen.values()) >= least:
                break
    print("%s: %s, %d replies compared, %d wrong" % (" ".join(flags), seen, compared, wrong))
    if min(seen.values()) < least:
        print("WRONG  too few interruptions: %s, wanted %d of each" % (seen, least))
        wrong += 1
    return compared, wrong


def main():
    which = sys.argv[1]
    model = servers.model_file("real" if which == "real" else "tiny")
    engine = QUICK_NULL if which == "null" else []
    began = time.monotonic()
    with servers.Up(model, *engine) as s:
        requests = prompts.make(s.port, 60 if which == "real" else 200, 16 if which == "real" else 48)
        if which == "real":
            requests = [r for r in requests if prompts.size(r[1]) <= 40]
        alone = [replies.ask(s.port, body) for _, body in requests]
    least = 100 if which == "real" else 1000
    switches = OFTEN if which == "real" else engine + SWITCHES
    compared, wrong = interrupted(model, switches, requests, alone, least, 200)
    if which != "real":
        more = ["--kv-tokens", "1024", "--prefill-chunk", "100", "--threads", "2", "--debug-chaos", "11"]
        c, w = interrupted(model, engine + SWITCHES + more, requests, alone, least // 4, 200)
        compared, wrong = compared + c, wrong + w
    print("%d replies compared, %d wrong, %.1f s" % (compared, wrong, time.monotonic() - began))
    return 1 if wrong or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
