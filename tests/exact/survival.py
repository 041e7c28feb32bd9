#!/usr/bin/env python3
"""Kills in the middle of eight streams.

usage: survival.py tiny|real
The worker killed: after its restart all eight go on, joined they are the bytes of the same request alone, nothing
twice, nothing missing. Killed and not restarted: all end with `event: error`. The gateway killed: every client sees
the end of its connection, the worker takes everything back and serves the gateway that comes next.
"""
import os
import signal
import sys
import threading

import prompts
import replies
import servers
from servers import harness

STREAMS = 8
NO_WORKER_S = 2  # of --no-worker-timeout-s; the default is 5


class Failed(Exception):
    pass


class Eight:
    """Eight streams that run at once; `middle` is set when each has had some of its events."""

    def __init__(self, server, requests, events):
        self.want = events
        self.middle = threading.Event()
        self.streams = [replies.Stream(server.port, body, seen=self.seen) for _, body in requests]
        self.threads = [threading.Thread(target=s.run, daemon=True) for s in self.streams]
        for t in self.threads:
            t.start()

    def seen(self, stream, data):
        if min(len(s.events) for s in self.streams) >= self.want:
            self.middle.set()

    def in_the_middle(self):
        """Waits; false when one has ended already."""
        if not self.middle.wait(harness.LIMIT_S):
            raise Failed("the streams do not get on: %s" % [len(s.events) for s in self.streams])
        return all(s.end is None for s in self.streams)

    def join(self):
        for t in self.threads:
            t.join(harness.LIMIT_S * 2)
            if t.is_alive():
                raise Failed("a client hangs")
        return [s.end for s in self.streams]


def start(server, requests):
    """Eight in the middle of their answers; again when the clients were too slow to be there in time."""
    for _ in range(10):
        eight = Eight(server, requests, 3)
        if eight.in_the_middle():
            return eight
        eight.join()
    raise Failed("a stream always ends before all have begun: nothing would be shown")


def requests_of(server, out, tier):
    """Long streams, greedy and drawn; all of one class, since the lower one stands while the upper runs."""
    ids = prompts.token_ids(server.port, 300)
    base = {"model": servers.NAME, "logprobs": 1, "max_tokens": out, "ignore_eos": True}
    return [("stream %d" % i, dict(base, prompt=ids[7 * i:7 * i + 5 + 9 * i], seed=i, temperature=i % 2,
                                   service_tier=tier)) for i in range(STREAMS)]


def same(what, streams, alone):
    for i, (s, want) in enumerate(zip(streams, alone)):
        got = replies.joined(s.events)
        if got != replies.structure(want):
            raise Failed("%s: stream %d: %s" % (what, i, replies.difference(got, replies.structure(want))))


def worker_killed(server, requests, alone, kills):
    eight = start(server, requests)
    for k in range(kills):
        os.kill(server.children()["worker"], signal.SIGKILL)
        server.ready()  # said again after each restart
        if k + 1 < kills and all(s.end is None for s in eight.streams):
            eight.middle.clear()
            eight.want = 5 + max(len(s.events) for s in eight.streams)
            eight.in_the_middle()
    if eight.join() != ["done"] * STREAMS:
        raise Failed("the worker killed: streams end with %s" % [(s.end, s.error) for s in eight.streams])
    same("the worker killed %d times" % kills, eight.streams, alone)
    if server.metric("sluice:resubmits_total") < STREAMS:
        raise Failed("fewer resubmits than streams: the kill came to nothing")


def no_worker(server, requests, alone):
    """A supervisor that is stopped restarts nobody."""
    eight = start(server, requests)
    worker = server.children()["worker"]
    server.signal(signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    ends = eight.join()
    status = server.http("GET", "/ready")[0]
    server.signal(signal.SIGCONT)
    if ends != ["error"] * STREAMS or any(b'"error"' not in s.error for s in eight.streams):
        raise Failed("no worker: streams end with %s" % [(s.end, s.error) for s in eight.streams])
    for i, (s, want) in enumerate(zip(eight.streams, alone)):
        part, whole = replies.joined(s.events)["choices"][0], replies.structure(want)["choices"][0]
        if part["logprobs"]["tokens"] != whole["logprobs"]["tokens"][:len(part["logprobs"]["tokens"])]:
            raise Failed("no worker: stream %d said something else before" % i)
    if status != 503:
        raise Failed("no worker: /ready says %d" % status)
    server.ready()
    servers.nothing_left(server)


def gateway_killed(server, requests, alone):
    worker = server.children()["worker"]
    eight = start(server, requests)
    os.kill(server.children()["gateway"], signal.SIGKILL)
    if eight.join() != ["cut"] * STREAMS:
        raise Failed("the gateway killed: streams end with %s" % [s.end for s in eight.streams])
    server.ready()
    servers.nothing_left(server)
    if server.children()["worker"] != worker:
        raise Failed("the worker did not outlive the gateway")
    for (name, body), want in zip(requests[:3], alone):
        if replies.structure(replies.ask(server.port, body)) != replies.structure(want):
            raise Failed("after the gateway's restart: another answer to %s" % name)
    servers.nothing_left(server)


def main():
    model = servers.model_file(sys.argv[1])
    # The tiny model has to be slowed down, or its streams end before eight clients have begun to read.
    out, slow = (300, ["--kernel", "scalar"]) if sys.argv[1] == "tiny" else (40, [])
    with servers.Up(model, "--no-worker-timeout-s", str(harness.LIMIT_S), *slow) as s:
        requests, batch = requests_of(s, out, "default"), requests_of(s, out, "flex")
        alone = [replies.ask(s.port, body) for _, body in requests]
        worker_killed(s, requests, alone, 1 if sys.argv[1] == "real" else 3)
        worker_killed(s, batch, alone, 1)
        servers.nothing_left(s)
        gateway_killed(s, requests, alone)
        gateway_killed(s, batch, alone)
    with servers.Up(model, "--no-worker-timeout-s", str(NO_WORKER_S), *slow) as s:
        no_worker(s, requests, alone)
    print("8 streams over a killed worker, without one, over a killed gateway; of each class: as promised")
    return 0


if __name__ == "__main__":
    sys.exit(main())
