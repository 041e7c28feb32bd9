"""Requests over HTTP, and what of a reply must be equal: everything but its id and its time."""
import http.client
import json
import re
import threading

TIMEOUT_S = 600


class Broken(Exception):
    """A reply that did not come whole."""


def strip(body):
    """The bytes of a reply without the two values that say which reply it is, and without what was cached before."""
    text, n = re.subn(rb'^\{"id":"[^"]*",', b"{", body)
    text, m = re.subn(rb'"created":\d+,', b"", text, count=1)
    if n != 1 or m != 1:
        raise Broken("unexpected head of a reply: %r" % body[:200])
    return re.sub(rb'"cached_tokens":\d+', b'"cached_tokens":0', text)


def path_of(body):
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def post(port, body, headers=(), path=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        c.request("POST", path or path_of(body), json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def ask(port, body):
    """A whole reply's bytes; anything but 200 is an error of the test."""
    status, data = post(port, body)
    if status != 200:
        raise Broken("%d: %r" % (status, data[:300]))
    return strip(data)


class Stream:
    """One SSE reply, event by event. `seen` is called with (self, data) for each; `end` says how it ended:
    done ([DONE] came), error (`event: error`), cut (the connection ended before)."""

    def __init__(self, port, body, seen=None, headers=()):
        self.events, self.end, self.error = [], None, None
        self.seen = seen
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self.c.request("POST", path_of(body), json.dumps(dict(body, stream=True,
                       stream_options={"include_usage": True})),
                       {"Content-Type": "application/json", **dict(headers)})

    def run(self):
        """Until the end of the reply; its head comes with the first token, so that only here is waited."""
        name = None
        try:
            r = self.c.getresponse()
            if r.status != 200:
                self.end, self.error = "refused", r.read()
            for line in r:
                line = line.rstrip(b"\r\n")
                if line.startswith(b"event: "):
                    name = line[7:]
                elif line.startswith(b"data: "):
                    self.take(name, line[6:])
                    name = None
        except (OSError, http.client.HTTPException):
            pass
        if self.end is None:
            self.end = "cut"
        self.c.close()
        return self

    def take(self, name, data):
        if name == b"error":
            self.end, self.error = "error", data
        elif data == b"[DONE]":
            self.end = "done"
        else:
            self.events.append(data)
            if self.seen:
                self.seen(self, data)

    def close(self):
        """The client goes away; to be called from another thread too."""
        import socket
        try:
            self.c.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass


def parse(data):
    """JSON with every number as the text it was sent as."""
    return json.loads(data, parse_float=str, parse_int=str)


def add_lists(into, more):
    """Lists are joined, the rest stays; None is nothing yet."""
    if more is None:
        return into
    if into is None:
        return more
    return {k: into[k] + v if isinstance(v, list) else v for k, v in more.items()}


def add_choice(into, c):
    if into["finish_reason"] is not None:
        raise Broken("something came after the finish: %r" % c)
    if "delta" in c:
        message = into.setdefault("message", {"content": "", "refusal": None, "annotations": []})
        message["role"] = c["delta"].get("role", message.get("role"))
        message["content"] += c["delta"].get("content") or ""
    else:
        into["text"] = into.get("text", "") + c["text"]
    into["finish_reason"] = c["finish_reason"]
    into["logprobs"] = add_lists(into["logprobs"], c.get("logprobs"))


def joined(events):
    """A stream put together again: what the reply would have been without `stream`, as a structure."""
    choices, usage = {}, None
    for data in events:
        event = parse(data)
        if event.get("usage") is not None:
            usage = dict(event["usage"], prompt_tokens_details={"cached_tokens": "0"})
        for c in event["choices"]:
            empty = {"index": c["index"], "logprobs": None, "finish_reason": None}
            add_choice(choices.setdefault(c["index"], empty), c)
    return {"choices": [choices[k] for k in sorted(choices, key=int)], "usage": usage}


def structure(whole):
    """The same of a reply that came in one piece."""
    reply = parse(whole)
    return {"choices": reply["choices"], "usage": reply["usage"]}


def as_floats(x):
    """For doors that carry numbers as binary values: texts of numbers become the floats they mean."""
    import struct
    if isinstance(x, dict):
        return {k: as_floats(v) for k, v in x.items()}
    if isinstance(x, list):
        return [as_floats(v) for v in x]
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return struct.unpack("f", struct.pack("f", x))[0]
    return x


def difference(got, want, path=""):
    """The first place where two replies differ, in words."""
    if isinstance(want, bytes) and isinstance(got, bytes):
        try:
            got, want = parse(got), parse(want)
        except ValueError:
            pass
    if isinstance(want, dict) and isinstance(got, dict):
        for k in list(want) + [k for k in got if k not in want]:
            if got.get(k) != want.get(k):
                return difference(got.get(k), want.get(k), "%s.%s" % (path, k))
    elif isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)) and len(got) == len(want):
        for i, (g, w) in enumerate(zip(got, want)):
            if g != w:
                return difference(g, w, "%s[%d]" % (path, i))
    return "%s is %.300r, not %.300r" % (path or "it", got, want)


def together(jobs):
    """Runs each callable on a thread of its own; returns the results in order, raises the first error."""
    results, errors = [None] * len(jobs), []

    def run(i, job):
        try:
            results[i] = job()
        except BaseException as e:  # reported by the caller's thread
            errors.append(e)
    threads = [threading.Thread(target=run, args=(i, j), daemon=True) for i, j in enumerate(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results
