"""The shared cases on KV memory, end to end: prefix cache, host tier, preemption. Each test names its case.

Answers are compared with log-probabilities. Nothing is timed: order comes from the worker's event log or from counts.
"""
import json
import os
import random
import threading

import harness
from api_rig import ApiTest, finishes, text_of
from harness import wait_until
from test_api_worker import Reader

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BLOCK = 16
SEED = int(os.environ.get("SLUICE_SEED", "20261201"))


def whole_blocks(n):
    """Cached positions of a prompt of n ids that was computed before: its last id is always computed."""
    return (n - 1) // BLOCK * BLOCK


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def together(jobs):
    """Each callable on its own thread; the results in order."""
    results, errors = [None] * len(jobs), []

    def run(i):
        try:
            results[i] = jobs[i]()
        except BaseException as e:  # raised below, on the test's thread
            errors.append(e)
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(harness.LIMIT_S)
    if errors:
        raise errors[0]
    assert not any(t.is_alive() for t in threads), "a client hangs"
    return results


class KvCase(ApiTest):
    def setUp(self):
        super().setUp()
        print("seed %d" % SEED)
        self.rng = random.Random(SEED)
        self.letters = None

    def worker(self, *flags):
        """A gateway and a worker with the tiny model; the worker of before, if any, stays."""
        p = self.open_pair(engine="cpu", worker=flags)
        if self.letters is None:
            text = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,;:!?"
            self.letters = sorted(set(self.ids_of(p, prompt=text)))
        return p

    def ids_of(self, p, **body):
        return p.call("POST", "/tokenize", dict(body, model=p.name)).json()["tokens"]

    def prompt(self, n):
        return [self.rng.choice(self.letters) for _ in range(n)]

    def ask(self, p, prompt, **more):
        body = p.completion_body(prompt, **dict({"logprobs": 1, "ignore_eos": True}, **more))
        r = p.call("POST", COMPLETIONS, body)
        self.assertEqual(r.status, 200, r.body)
        return r.json()

    def ask_stream(self, p, prompt, **more):
        """(choice as a whole reply has it, usage) of a stream."""
        body = p.completion_body(prompt, **dict({"logprobs": 1, "ignore_eos": True}, **more))
        events = p.stream(COMPLETIONS, dict(body, stream_options={"include_usage": True}))
        self.assertEqual(events[-1], "DONE")
        self.assertEqual(len(finishes(events)), 1)
        scores = {}
        for e in events[:-2]:
            for key, part in (e["choices"][0]["logprobs"] or {}).items():
                scores[key] = scores.get(key, []) + part
        return {"text": text_of(events), "logprobs": scores, "usage": events[-2]["usage"]}

    def same(self, got, want, what=""):
        """Text and scores of two whole replies."""
        self.assertEqual([(c["text"], c["logprobs"], c["finish_reason"]) for c in got["choices"]],
                         [(c["text"], c["logprobs"], c["finish_reason"]) for c in want["choices"]], what)

    def hits(self, p):
        return p.metric("vllm:prefix_cache_hits_total")


class PrefixCache(KvCase):
    def test_b16_whole_prompt_cached(self):
        """B16: a prompt of any length three times; what is reported as cached is what the worker attached."""
        p, total = self.worker("--prefill-chunk", "64"), 0
        for n in (1, 15, 16, 17, 32, 48, 64):
            for made in (1, 20):
                ids = self.prompt(n)
                replies = [self.ask(p, ids, max_tokens=made) for _ in range(3)]
                self.assertEqual([cached(r) for r in replies], [0, whole_blocks(n), whole_blocks(n)], (n, made))
                for r in replies:
                    self.same(r, replies[0], (n, made))
                    self.assertEqual(r["usage"]["total_tokens"], n + made)
                total += 2 * whole_blocks(n)
        wait_until(lambda: self.hits(p) >= total, "hits in the metrics")
        self.assertEqual(self.hits(p), total)
        p.wait_idle()

    def turns(self, p):
        """A chat of four turns: [(answer, usage)]."""
        messages, out = [], []
        for i in range(4):
            messages.append({"role": "user", "content": "question %d, with some words to fill it" % i})
            r = p.call("POST", CHAT, p.chat_body(messages=messages, max_tokens=12, ignore_eos=True)).json()
            messages.append({"role": "assistant", "content": r["choices"][0]["message"]["content"]})
            out.append((messages[-1]["content"], r["usage"]))
        return out

    def test_b16_chat_crosses_the_chunk(self):
        """B16: a chat whose prompt passes the chunk size at its third turn, against a worker without a cache."""
        plain = self.turns(self.worker("--prefix-cache=false"))
        sizes = [u["prompt_tokens"] for _, u in plain]
        self.assertEqual([u["prompt_tokens_details"]["cached_tokens"] for _, u in plain], [0] * 4)
        for chunk in (sizes[1] + 1, sizes[2] - 1, sizes[2]):
            got = self.turns(self.worker("--prefill-chunk", str(chunk)))
            self.assertEqual([a for a, _ in got], [a for a, _ in plain])
            hits = [u["prompt_tokens_details"]["cached_tokens"] for _, u in got]
            self.assertEqual(hits[0], 0)
            for i in range(1, 4):  # at least the last turn's prompt, less its last block
                self.assertGreaterEqual(hits[i], whole_blocks(sizes[i - 1]) - BLOCK)
                self.assertLess(hits[i], sizes[i])

    def test_cached_tokens_of_choices_and_streams(self):
        """What the first of several choices leaves for the others was not cached before the request."""
        p = self.worker()
        a, b = self.prompt(40), self.prompt(70)
        one = self.ask(p, [a, b], n=2, temperature=1, seed=3)
        self.assertEqual(cached(one), 0)
        two = self.ask(p, [a, b], n=2, temperature=1, seed=3)
        self.assertEqual(cached(two), 32 + 64)
        self.same(two, one)
        self.assertEqual(cached(self.ask_stream(p, a)), 32)
        events = p.stream(COMPLETIONS, p.completion_body(b, stream_options={"include_usage": True,
                                                                             "continuous_usage_stats": True}))
        self.assertEqual({cached(e) for e in events if isinstance(e, dict)}, {64})
        self.assertEqual(cached(self.ask(p, b, echo=True)), 0)  # rows of the prompt have to be computed
        body = p.chat_body("a question of more than a block", stream_options={"include_usage": True})
        first = p.stream(CHAT, body)[-2]
        again = p.stream(CHAT, body)[-2]
        self.assertEqual((cached(first), cached(again)), (0, whole_blocks(again["usage"]["prompt_tokens"])))

    def test_b19_evictions(self):
        """B19: 200 prompts of an eighth of the pool each; all are served, and an idle pool counts as empty."""
        p = self.worker("--kv-tokens", str(8 * 8 * BLOCK))
        for i in range(200):
            last = self.prompt(8 * BLOCK - 4)
            self.assertEqual(cached(self.ask(p, last, max_tokens=4)), 0)
            if i % 20 == 0:
                self.assertTrue(0 <= p.metric("vllm:kv_cache_usage_perc") <= 1)
        wait_until(lambda: p.metric("sluice:prefix_cache_evictions_total") > 1000, "evictions")
        wait_until(lambda: p.metric("vllm:kv_cache_usage_perc") == 0, "an idle pool")
        self.assertEqual(cached(self.ask(p, last, max_tokens=4)), whole_blocks(len(last)))
        p.wait_idle()

    def test_b20_salt(self):
        """B20: one prompt under several salts: hits under the same one only, and the same answer under all."""
        p = self.worker()
        ids, salts = self.prompt(600), [None, "A", "B", "a|b", "", "x" * 257, 7]
        want = self.ask(p, ids)
        self.assertEqual(cached(want), 0)
        for salt in salts[1:4]:
            first, again = self.ask(p, ids, cache_salt=salt), self.ask(p, ids, cache_salt=salt)
            self.assertEqual((cached(first), cached(again)), (0, whole_blocks(600)), salt)
            self.same(first, want)
            self.same(again, want)
        self.assertEqual(cached(self.ask(p, ids, cache_salt=None)), whole_blocks(600))
        for salt, code in (("", "invalid_value"), ("x" * 257, "invalid_value"), (7, "invalid_type")):
            r = p.completion(ids, cache_salt=salt)
            self.assertEqual((r.status, r.code, r.json()["error"]["param"]), (400, code, "cache_salt"))
        self.assertEqual(cached(self.ask(p, ids, cache_salt="x" * 256)), 0)

    def test_b21_no_foreign_conversation(self):
        """B21: 12 chats at once in a small pool with a host tier, two salts; every answer is that of its chat alone, and
        no more is reported as cached than any earlier prompt of the same salt could have left."""
        alone = self.worker("--prefix-cache=false")
        words = ["".join(self.rng.choice("BCDFGHKLMNPQRSTVWXZ") for _ in range(8)) for _ in range(12)]
        p = self.worker("--kv-tokens", "1024", "--host-kv-tokens", "4096", "--min-run", "1", "--debug-preempt-every", "9")
        chats = [[{"role": "user", "content": "The codeword is %s. Repeat it." % w}] for w in words]
        known, hits = ([], []), 0

        def turn(server, i):
            body = server.chat_body(messages=chats[i], max_tokens=16, ignore_eos=True, cache_salt="tenant %d" % (i % 2))
            return server.call("POST", CHAT, body).json()
        for _ in range(4):
            prompts = [self.ids_of(p, messages=c) for c in chats]
            want = [turn(alone, i)["choices"][0]["message"]["content"] for i in range(12)]
            got = together([lambda i=i: turn(p, i) for i in range(12)])
            for i in range(12):  # of this round, any may have come first
                known[i % 2].append((i, prompts[i]))
            for i, r in enumerate(got):
                text = r["choices"][0]["message"]["content"]
                self.assertEqual(text, want[i])
                self.assertFalse([w for w in words if w != words[i] and w in text])
                self.assertEqual(r["usage"]["prompt_tokens"], len(prompts[i]))
                most = max([16 * (j == i) + common(prompts[i], q) for j, q in known[i % 2] if q is not prompts[i]] or [0])
                self.assertLessEqual(cached(r), min(most, len(prompts[i]) - 1))
                self.assertEqual(cached(r) % BLOCK, 0)
                hits += cached(r)
                chats[i] += [{"role": "assistant", "content": text}, {"role": "user", "content": "Again: %s?" % words[i]}]
        self.assertGreater(hits, 0)
        p.wait_idle()


class Preempted(KvCase):
    def test_b11_resume(self):
        """B11: preempted after 1, 15, 16, ... tokens, once or many times, back by copies or by computing: same ids, same
        scores, and what came back is not reported as cached."""
        p = self.worker("--prefix-cache=false", "--prefill-chunk", "256")
        ids = self.prompt(10)
        want = self.ask(p, ids, max_tokens=200, service_tier="flex")
        came = {"swap": 0, "recompute": 0}
        for mode in came:
            for every in (1, 15, 16, 17, 31, 32, 33, 67, 199):
                p = self.worker("--prefix-cache=false", "--host-kv-tokens", "2048", "--prefill-chunk", "256",
                                "--debug-resume", mode,
                                "--debug-preempt-every", str(every))
                got = self.ask(p, ids, max_tokens=200, service_tier="flex")
                self.same(got, want, (mode, every))
                self.assertEqual((got["usage"]["completion_tokens"], cached(got)), (200, 0))
                wait_until(lambda: p.metric("vllm:num_preemptions_total") >= 1, "a preemption")
                s = self.ask_stream(p, ids, max_tokens=200, service_tier="flex")
                self.assertEqual(s["text"], want["choices"][0]["text"])
                self.assertEqual(s["logprobs"]["token_logprobs"], want["choices"][0]["logprobs"]["token_logprobs"])
                self.assertEqual(s["usage"]["completion_tokens"], 200)
                p.wait_idle()
                wait_until(lambda: p.metric("sluice:swap_ins_total") + p.metric("sluice:recomputes_total") >= 1, "a resume")
                name = "sluice:swap_ins_total" if mode == "swap" else "sluice:recomputes_total"
                came[mode] += p.metric(name)
                if mode == "recompute":
                    self.assertEqual(p.metric("sluice:swap_ins_total"), 0)
                p.stop()
        self.assertGreater(min(came.values()), 5, came)

    def test_b14_swap_under_load(self):
        """B14: 16 streams, a pool for three of them, host tier on; then the same with a fifth cancelled."""
        alone = self.worker("--prefix-cache=false")
        prompts = [self.prompt(30 + i) for i in range(16)]
        want = [self.ask_stream(alone, q, max_tokens=100, service_tier="flex") for q in prompts]
        p = self.worker("--kv-tokens", str(3 * 10 * BLOCK), "--host-kv-tokens", "4096", "--min-run", "1",
                        "--debug-resume", "swap", "--debug-preempt-every", "11")
        for k in range(60):  # as many rounds as the swaps take; idle copies come when they can
            if k >= 6 and p.metric("sluice:swap_ins_total") > 16:
                break
            leave = set(self.rng.sample(range(16), 3)) if k >= 3 else ()

            def cancelled(i):
                with p.open_stream(COMPLETIONS, p.completion_body(prompts[i], max_tokens=100, ignore_eos=True, service_tier="flex")) as c:
                    self.assertEqual(c.head()[0], 200)
                    next(c.events())
            jobs = [(lambda i=i: cancelled(i)) if i in leave else
                    (lambda i=i: self.ask_stream(p, prompts[i], max_tokens=100, service_tier="flex")) for i in range(16)]
            for i, r in enumerate(together(jobs)):
                if i not in leave:
                    self.assertEqual((r["text"], r["logprobs"]), (want[i]["text"], want[i]["logprobs"]), (k, i))
        p.wait_idle()
        wait_until(lambda: p.metric("vllm:kv_cache_usage_perc") == 0, "an empty pool")
        self.assertGreater(p.metric("vllm:num_preemptions_total"), 16)
        self.assertGreater(p.metric("sluice:swap_ins_total"), 16)


class Chunks(KvCase):
    def test_b10_decode_goes_on(self):
        """B10: while a long prompt is computed chunk by chunk, the running stream is in every step (event log)."""
        log = self.path("events")
        # chaos delays each step by a little: the stream is not over before the long prompt comes
        p = self.worker("--prefill-chunk", "64", "--debug-chaos", "7", "--event-log", log)
        long = self.prompt(1900)
        stream = Reader(p.open_stream(COMPLETIONS, p.completion_body("go", max_tokens=1500, ignore_eos=True)))
        wait_until(lambda: len(stream.events) >= 20, "a stream under way")
        self.ask(p, long, max_tokens=1)
        self.assertFalse("DONE" in stream.events, "the stream was over before the prompt: nothing was shown")
        stream.c.s.close()
        p.worker.signal(harness.signal.SIGTERM)
        p.worker.wait()
        with open(log, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        if any("dropped" in x for x in lines):
            self.skipTest("the event log has a hole: it proves nothing")
        slot = {x["n_prompt"]: x["slot"] for x in lines if x.get("event") == "submit"}
        steps = [x["spans"] for x in lines if x.get("action") == "step_submit"]
        mine, other = slot[1900], [s for n, s in slot.items() if n != 1900][0]
        chunks = [i for i, spans in enumerate(steps) if any(s[0] == mine and s[2] > 0 for s in spans)]
        self.assertGreaterEqual(len(chunks), 1900 // 64)
        gap = 0
        for i in range(chunks[0], chunks[-1] + 1):
            gap = 0 if any(s[0] == other and s[5] for s in steps[i]) else gap + 1
            self.assertLessEqual(gap, 1, "the stream stood still for more than one chunk")
        self.assertTrue(all(s[2] <= 64 for spans in steps for s in spans))


if __name__ == "__main__":
    harness.main()
