"""Eighteen requests that differ in everything that decides an answer."""
import json

from replies import post
from servers import NAME

TEXT = ("The ferry left the harbour before sunrise, and nobody on the pier could say whether the old "
        "captain was aboard. Maria counted the crates twice: forty-one of salt, nine of lamp oil, one "
        "without a label. \"Write it down,\" her brother said, \"and let the office worry.\" By noon the "
        "wind had turned (it always does in March), the gulls were gone, and 3 of the 12 nets hung "
        "torn from the crane. She thought of the letter, of the price of rope in 1987, of how quiet "
        "the house would be. Then somebody rang the bell. ") * 8


def token_ids(port, n):
    """The first n tokens of the text, by the server's own tokenizer."""
    status, body = post(port, {"model": NAME, "prompt": TEXT, "add_special_tokens": False}, path="/tokenize")
    ids = json.loads(body)["tokens"]
    if status != 200 or len(ids) < n:
        raise RuntimeError("tokenize: %d, %d tokens" % (status, len(ids)))
    return ids[:n]


def some_inside(text):
    """Three plain characters of a text, well inside it: a stop string that is sure to come."""
    for at in range(4, len(text) - 3):
        piece = text[at:at + 3]
        if piece.isascii() and piece.isprintable():
            return piece
    return "e"


def make(port, long=500, out=32):
    """-> list of (name, body). The seeds are fixed here, so that an answer is a function of the body."""
    ids = token_ids(port, max(long, 300))
    base = {"model": NAME, "logprobs": 2, "max_tokens": out, "ignore_eos": True}

    def request(at, length, **more):
        return dict(base, prompt=ids[at:at + length], **more)
    drawn = {"temperature": 1}
    stop_at = json.loads(post(port, request(40, 17, temperature=0))[1])["choices"][0]["text"]
    return [
        ("greedy, 1 token", request(3, 1, temperature=0)),
        ("greedy, 15", request(10, 15, temperature=0)),
        ("greedy, 16", request(10, 16, temperature=0)),
        ("greedy, 17", request(10, 17, temperature=0, logprobs=1)),
        ("greedy, 33", request(60, 33, temperature=0)),
        ("greedy, 100", request(0, 100, temperature=0, max_tokens=out + 8)),
        ("greedy, long", request(0, long, temperature=0)),
        ("seeded, 1", request(7, 1, seed=1, **drawn)),
        ("seeded, 16, n=2", request(20, 16, seed=-5, n=2, **drawn)),
        ("seeded, top_p", request(30, 33, seed=3, temperature=1.3, top_p=0.8)),
        ("seeded, top_k", request(90, 17, seed=4, top_k=7, **drawn)),
        ("seeded, min_p", request(120, 100, seed=5, min_p=0.05, temperature=0.9)),
        ("penalties", request(5, 40, seed=6, presence_penalty=0.7, frequency_penalty=0.4,
                              repetition_penalty=1.2, **drawn)),
        ("bias, stop id, end allowed", request(50, 21, seed=7, ignore_eos=False, min_tokens=4, stop_token_ids=[9],
                                               logit_bias={"40": 2.5, "11": -100}, **drawn)),
        ("stop string", request(40, 17, temperature=0, stop=[some_inside(stop_at), "zebra"])),
        ("echo of the prompt", request(150, 37, seed=8, echo=True, **drawn)),
        ("two prompts", dict(base, prompt=[ids[2:9], ids[2:10]], seed=9, **drawn)),
        ("chat", {"model": NAME, "messages": [{"role": "user", "content": TEXT[:60]}], "max_tokens": out, "seed": 10,
                  "temperature": 1, "logprobs": True, "top_logprobs": 2}),
    ]


def size(body):
    """Prompt tokens, about."""
    return len(body["prompt"]) if "prompt" in body else 60
