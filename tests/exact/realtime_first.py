#!/usr/bin/env python3
"""Fifty times a real-time request arrives beside 15 running batch requests; the worker's event log is the witness.

usage: realtime_first.py tiny|real
Between the event that brings it and the first step that computes it, at most the running segment of a lower step
is computed and no lower step is begun or continued; its first token leaves before any of the 15 ends. Counted in
events, not in time: a slow machine changes nothing. The log loses records when its idle-priority writer gets no
time; a story with a gap is not counted, and rounds go on until fifty are whole.
"""
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time

import prompts
import replies
import servers

TRIES = 50
BATCH = 15
PER_ROUND = 10        # most arrivals beside one set of 15; then the 15 are taken back and others start
ENOUGH = 800          # tokens of one batch request after which its round is over: far from any end by the context
ROUNDS_MAX = 40
SEED = int(os.environ.get("SLUICE_SEED", "20260730"))


class Wrong(Exception):
    pass


# ---- the load

def start_batch(server, ids, begun):
    """Fifteen that end long after the round: prompts of many chunks, outputs up to the context."""
    streams = []
    for i in range(BATCH):
        body = {"model": servers.NAME, "prompt": ids[i:i + 200 + 20 * i], "max_tokens": 100000, "ignore_eos": True,
                "service_tier": "flex", "seed": i, "temperature": 1}
        streams.append(replies.Stream(server.port, body, seen=lambda s, d: begun.set()))
    for s in streams:
        s.thread = threading.Thread(target=s.run, daemon=True)
        s.thread.start()
    return streams


def arrive(server, ids, streams, rng, pause_s):
    """One real-time request after a while. True: its first token came before any of the 15 ended."""
    time.sleep(rng.random() * pause_s)  # so that it meets the running step anywhere; decides nothing else
    first = []

    def seen(stream, data):
        if not first:
            first.append(all(s.end is None for s in streams))
    body = {"model": servers.NAME, "prompt": ids[:rng.randrange(4, 16)], "max_tokens": rng.randrange(1, 3),
            "ignore_eos": True, "temperature": 0}
    end = replies.Stream(server.port, body, seen=seen).run().end
    if end != "done" or not first:
        raise Wrong("a real-time request ended with '%s'" % end)
    return first[0]


def one_round(server, ids, rng, tries, pause_s, late):
    """late: the batch runs already when the arrivals begin; else they meet its prompts too. -> arrivals, and how many
    had their first token before any batch request's end. A fast machine gets fewer arrivals into a round."""
    begun = threading.Event()
    streams = start_batch(server, ids, begun)
    if late:
        begun.wait(replies.TIMEOUT_S)
    arrived = before = 0
    while arrived < tries and max(len(s.events) for s in streams) < ENOUGH:
        before += arrive(server, ids, streams, rng, pause_s)
        arrived += 1
    for s in streams:
        s.close()
    for s in streams:
        s.thread.join()
    return arrived, before


# ---- the log

class Log:
    """The records that came since the last look; a line half written waits for its end."""

    def __init__(self, path):
        self.file = open(path, encoding="utf-8")
        self.rest = ""

    def news(self):
        lines = (self.rest + self.file.read()).split("\n")
        self.rest = lines.pop()
        return [json.loads(line) for line in lines]


class Watch:
    """What happened since one real-time request came."""

    def __init__(self, slot, running):
        self.slot, self.running = slot, running  # the lower step that ran then, or None
        self.parked = self.ended = self.asked = self.whole = False
        self.first_step = None


class Reader:
    """Follows the records; counts tries whose story is whole and right."""

    def __init__(self):
        self.rank = {}       # step -> its rank
        self.running = None  # the step that computes now
        self.rank_of = {}    # slot -> rank
        self.watches = []
        self.told = []       # finished stories
        self.gaps = 0

    def lower(self, step):
        return step is not None and self.rank.get(step) == 1

    def read(self, records):
        for r in records:
            if "dropped" in r:
                self.gaps += 1
                self.watches, self.running, self.rank, self.rank_of = [], None, {}, {}
            elif "event" in r:
                getattr(self, "on_" + r["event"], self.nothing)(r)
            elif "action" in r:
                getattr(self, "do_" + r["action"], self.nothing)(r)

    def nothing(self, r):
        pass

    def on_submit(self, r):
        if r["slot"] < 0:
            return
        self.rank_of[r["slot"]] = r["rank"]
        if r["rank"] == 0:
            self.watches.append(Watch(r["slot"], self.running if self.lower(self.running) else None))

    def on_step_parked(self, r):
        if r["segments_done"] > r["segment_at_request"] + 1:
            raise Wrong("more than the running segment was computed: %r" % r)
        for w in self.watches:
            w.parked |= w.running == r["step"]
        self.running = None

    def on_step_end(self, r):
        for w in self.watches:
            w.ended |= w.running == r["step"]
        if self.running == r["step"]:
            self.running = None

    def do_step_submit(self, r):
        self.rank[r["step"]] = r["rank"]
        self.running = r["step"]
        slots = [s[0] for s in r["spans"]]
        for w in self.watches:
            if w.first_step is None and r["rank"] == 1:
                raise Wrong("a lower step was begun before the request's first: %r" % r)
            if w.first_step is None and w.slot in slots:
                if w.running is not None and not (w.parked or w.ended):
                    raise Wrong("a step was begun while another runs: %r" % r)
                w.first_step = r["step"]

    def do_step_continue(self, r):
        self.running = r["step"]
        if self.lower(r["step"]) and any(w.first_step is None for w in self.watches):
            raise Wrong("a lower step went on before the request's first: %r" % r)

    def do_step_park(self, r):
        for w in self.watches:
            w.asked |= w.running == r["step"]

    def do_tokens(self, r):
        if self.rank_of.get(r["slot"]) == 1 and r["finish"] not in ("", "none", "cancelled") and self.watches:
            raise Wrong("a batch request ended before a real-time request's first token: %r" % r)
        for w in [w for w in self.watches if w.slot == r["slot"] and r["to"] > r["from"]]:
            if w.first_step is None:
                raise Wrong("tokens without a step: %r" % r)
            if w.running is not None and not w.asked:
                raise Wrong("the running step was not asked to park for slot %d" % w.slot)
            self.watches.remove(w)
            self.told.append(w)


def run(model, pause_s, log_path):
    """-> reader, arrivals, how many had their first token before any batch request's end"""
    rng = random.Random(SEED)
    reader = Reader()
    before = tries = rounds = 0
    with servers.Up(model, "--event-log", log_path, "--threads", "1", "--cpus", servers.spread()) as s:
        log = Log(log_path)
        ids = prompts.token_ids(s.port, 700)
        while len(reader.told) < TRIES and rounds < ROUNDS_MAX:
            more = one_round(s, ids, rng, PER_ROUND, pause_s, rounds % 2 == 1)
            tries, before = tries + more[0], before + more[1]
            rounds += 1
            reader.read(log.news())
    reader.read(log.news())
    return reader, tries, before


def report(reader, tries, before, seconds):
    met = sum(w.running is not None for w in reader.told)
    parked = sum(w.parked for w in reader.told)
    print("%d arrivals, %d followed in the log (%d gaps): %d met a running batch step, %d parked it, %d came at its "
          "end; %d first tokens before any batch end; %.1f s"
          % (tries, len(reader.told), reader.gaps, met, parked, met - parked, before, seconds))
    if before != tries:
        print("WRONG  a batch request ended before a real-time request's first token")
        return 1
    if len(reader.told) < TRIES or parked < TRIES // 5:
        print("WRONG  too few arrivals could be followed, or met a running step: nothing was shown")
        return 1
    return 0


def main():
    model = servers.model_file(sys.argv[1])
    print("seed %d" % SEED)
    began = time.monotonic()
    folder = tempfile.mkdtemp(prefix="sluice-exact-")
    try:
        reader, tries, before = run(model, 0.02 if sys.argv[1] == "tiny" else 0.15, os.path.join(folder, "events"))
    finally:
        shutil.rmtree(folder)
    return report(reader, tries, before, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
