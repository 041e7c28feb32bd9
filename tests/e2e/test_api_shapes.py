"""What each endpoint takes and gives, and everything malformed: one clear error, nobody else touched."""
import json

import harness
from api_rig import ApiTest, finishes, text_of

PATHS_404 = ["//v1/chat/completions", "/./v1/models", "/v1//models", "/V1/models", "/%2Fv1/models", "/v1/models/", "/v1",
             "/v1/chat/completions/", "/v1/chat", "/", "/admin", "/v1/%00models", "/v1/models%00", "/..%2f..%2fetc/passwd",
             "/metrics/", "/v1/files", "/" + "a" * 1500, "/" + "b" * 5000, "/v1/mod\u00e9ls", "*"]


class Shapes(ApiTest):
    def setUp(self):
        super().setUp()
        self.open_pair("--max-body-bytes", "200k", "--max-header-bytes", "8k", engine="cpu")

    def healthy(self):
        self.assertEqual(self.pair.chat(max_tokens=2).status, 200)

    def test_pages(self):
        p = self.pair
        models = p.call("GET", "/v1/models").json()
        self.assertEqual([m["id"] for m in models["data"]], [p.name])
        card = p.call("GET", "/v1/models/" + p.name).json()
        self.assertEqual(card, models["data"][0])
        self.assertEqual(card["max_model_len"], 2048)
        self.assertEqual(p.call("GET", "/v1/models/%74iny").json(), card)
        self.assertEqual(p.call("GET", "/v1/models/nope").code, "model_not_found")
        for path in ("/health", "/ready", "/live", "/ping", "/version", "/metrics"):
            r = p.call("GET", path)
            self.assertEqual(r.status, 200, path)
            self.assertTrue(r.headers["x-request-id"])
            self.assertEqual(p.call("HEAD", path).status, 200, path)
        self.assertEqual(p.call("GET", "/health?x=1#y").status, 200)

    def test_paths(self):
        """Odd spellings of paths are 404, wrong methods 405 with Allow (B93); a connection that still reads lives on."""
        p = self.pair
        for path in PATHS_404:
            with p.raw() as c:
                c.send(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                r = c.reply()
                self.assertIn(r.status, (404, 414), path)
        self.assertEqual(p.call("GET", "http://test/v1/models").status, 404)
        for method, path, allow in (("GET", "/v1/chat/completions", "POST"), ("DELETE", "/v1/completions", "POST"),
                                    ("POST", "/v1/models", "GET, HEAD"), ("OPTIONS", "/tokenize", "POST"),
                                    ("BREW", "/metrics", "GET, HEAD"), ("PUT", "/v1/models/x", "GET, HEAD")):
            r = p.call(method, path, b"{}" if method in ("POST", "PUT") else None)
            self.assertEqual((r.status, r.headers.get("allow")), (405, allow), method + path)
            self.assertEqual(r.code, "method_not_allowed")
        self.healthy()

    def test_broken_bodies(self):
        p = self.pair
        good = json.dumps(p.chat_body()).encode()
        deep = b'{"x":' + b"[" * 10000 + b"]" * 10000 + b"}"
        for body in (b"", b" ", b"[]", b"null", b'"x"', b"{", good + b"x", good[:-1], good.replace(b"hi", b"\xff\xfe"),
                     good.replace(b"hi", b"\\ud83d"), good.replace(b"hi", b"\\udc00 x"), deep, b"\xef\xbb\xbf" + good,
                     b"[" * 90000, b'{"a":' * 20000, b'{"model":1,"model":2}', b"\x00" * 100):
            r = p.call("POST", "/v1/chat/completions", body)
            self.assertEqual(r.status, 400, body[:40])
            self.assertEqual((r.code, r.json()["error"]["type"]), ("invalid_json", "invalid_request_error"))
        self.healthy()

    def test_wrong_fields(self):
        p = self.pair
        for more, param in (({"stream": "true"}, "stream"), ({"max_tokens": "5"}, "max_tokens"), ({"max_tokens": 2.5}, "max_tokens"),
                            ({"temperature": 3}, "temperature"), ({"n": 0}, "n"), ({"messages": "x"}, "messages"),
                            ({"messages": []}, "messages"), ({"messages": [{"role": "foo", "content": "x"}]}, "messages"),
                            ({"stop": ["a"] * 5}, "stop"), ({"logit_bias": {"300": 1}}, "logit_bias"),
                            ({"top_logprobs": 3}, "top_logprobs"), ({"stream_options": {"include_usage": True}}, "stream_options"),
                            ({"model": None}, "model"), ({"tools": [{"type": "function"}]}, "tools")):
            r = p.chat(**more)
            self.assertEqual(r.status, 400, more)
            error = r.json()["error"]
            self.assertEqual(sorted(error), ["code", "message", "param", "type"])
            self.assertEqual(error["param"], param, more)
        self.assertEqual(p.chat(model="gpt").status, 404)
        self.assertEqual(p.chat(headers=["X-Sluice-Class: gold"]).status, 400)
        self.assertEqual(p.chat(headers=["X-Sluice-Class: " + "x" * 300]).status, 400)
        for prompt in ("", [""], [], [300], [-1], [4294967297], [1.5], {}, 5):
            self.assertEqual(p.completion(prompt).status, 400, prompt)
        self.assertEqual(p.completion([1] * 2048).code, "context_length_exceeded")
        # null is absent, whole floats are integers, unknown fields are ignored
        self.assertEqual(p.chat(max_tokens=5.0, temperature=None, stop=None, user="u", metadata={}).json()["usage"]["completion_tokens"], 5)

    def test_nul_counts(self):
        """A NUL in a message is text like any other (B43)."""
        a = self.pair.chat("Say BANANA.\0 And APPLE.").json()["usage"]["prompt_tokens"]
        b = self.pair.chat("Say BANANA. And APPLE.").json()["usage"]["prompt_tokens"]
        self.assertEqual(a, b + 1)

    def test_keep_alive_after_errors(self):
        """No error leaves bytes of its body behind for the next request on the connection (B36)."""
        p = self.pair
        big = b"GET /admin HTTP/1.1\r\n\r\n" * 2000
        for method, path, body in (("POST", "/nowhere", big), ("PUT", "/v1/models", big), ("POST", "/v1/chat/completions", big),
                                   ("POST", "/v1/chat/completions", b"x" * 300000), ("HEAD", "/v1/completions", None),
                                   ("POST", "/v1/completions", b"{}")):
            with p.raw() as c:
                c.request(method, path, body)
                r = c.reply(head_only=method == "HEAD")
                self.assertGreaterEqual(r.status, 400)
                if r.headers.get("connection", "").lower() == "close":
                    self.assertTrue(c.ended())
                    continue
                self.assertEqual(c.request("GET", "/live").reply().status, 200, (method, path))
                c.send(b"")

    def test_expect(self):
        """100 Continue before a good body, the final answer at once when the headers decide (B38)."""
        p = self.pair
        body = json.dumps(p.chat_body(max_tokens=1)).encode()
        with p.raw() as c:
            c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.assertTrue(c.line().startswith(b"HTTP/1.1 100"))
            c.line()
            self.assertEqual(c.send(body).reply().status, 200)
        for path, length, status in (("/v1/chat/completions", 10 ** 9, 413), ("/nowhere", 100, 404), ("/v1/models", 100, 405)):
            with p.raw() as c:
                c.send(("POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (path, length)).encode())
                r = c.reply()
                self.assertEqual((r.status, c.continued), (status, False))

    def test_sizes(self):
        p = self.pair
        self.assertEqual(p.call("POST", "/v1/chat/completions", b"x" * 300000).status, 413)
        self.assertEqual(p.call("POST", "/v1/chat/completions", b"x" * 300000).code, "request_too_large")
        with p.raw() as c:  # without a length
            c.send(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(30):
                c.send(b"2710\r\n" + b"y" * 10000 + b"\r\n")
            self.assertEqual(c.send(b"0\r\n\r\n").reply().status, 413)
        self.assertEqual(p.call("GET", "/live", headers=["X-A: " + "y" * 9000]).status, 431)
        self.assertEqual(p.call("GET", "/live", headers=["X-A: " + "y" * 7000]).status, 200)
        with p.raw() as c:
            c.send(b"GET /live HTTP/1.1\r\nX-A: " + b"z" * 400000)
            r = c.reply()
            self.assertIn(r.status if r else 431, (431, 413, 400))
        self.healthy()

    def test_chunked_and_pieces(self):
        """A body in chunks of one byte, headers in pieces, two requests in one write."""
        p = self.pair
        body = json.dumps(p.completion_body("hello", max_tokens=3)).encode()
        want = p.completion("hello", max_tokens=3).json()["choices"]
        with p.raw() as c:
            for part in (b"POST /v1/comp", b"letions HTTP/1.1\r\nHost", b": x\r\nTransfer-Encoding: chunked\r\n", b"\r\n"):
                c.send(part)
            for i in range(len(body)):
                c.send(b"1\r\n" + body[i:i + 1] + b"\r\n")
            self.assertEqual(c.send(b"0\r\n\r\n").reply().json()["choices"], want)
            one = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            c.send(one * 3 + b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            for _ in range(3):
                self.assertEqual(c.reply().json()["choices"], want)
            self.assertEqual(c.reply().status, 200)

    def test_request_id(self):
        p = self.pair
        self.assertEqual(p.chat(headers=["X-Request-Id: r1"]).headers["x-request-id"], "r1")
        for bad in ("", "a b", "x" * 200, "a\tb", "<script>"):
            self.assertTrue(p.chat(headers=["X-Request-Id: " + bad]).headers["x-request-id"].startswith("req_"))

    def test_stream_is_the_whole_reply(self):
        p = self.pair
        cases = [("/v1/chat/completions", p.chat_body(max_tokens=40, seed=5, temperature=1, n=2)),
                 ("/v1/completions", p.completion_body("the ", max_tokens=40, seed=7, temperature=1, ignore_eos=True)),
                 ("/v1/completions", p.completion_body(["a", "b", [108, 109]], max_tokens=9, n=2, seed=1, temperature=1)),
                 ("/v1/completions", p.completion_body("echo", echo=True, logprobs=2, max_tokens=6)),
                 ("/v1/completions", p.completion_body("echo", echo=True, max_tokens=0))]
        for path, body in cases:
            whole = p.call("POST", path, body).json()
            events = p.stream(path, dict(body, stream_options={"include_usage": True}))
            self.assertEqual(events[-1], "DONE")
            self.assertEqual(events[-2]["choices"], [])
            for usage in (events[-2]["usage"], whole["usage"]):  # the second request finds the first one's prompt
                usage["prompt_tokens_details"].pop("cached_tokens")
            self.assertEqual(events[-2]["usage"], whole["usage"])
            self.assertEqual(len({(e["id"], e["created"], e["model"]) for e in events[:-1]}), 1)
            for c in whole["choices"]:
                text = c["message"]["content"] if "message" in c else c["text"]
                self.assertEqual(text_of(events, c["index"]), text)
                self.assertEqual(finishes(events, c["index"]), [c["finish_reason"]])

    def test_usage_rules(self):
        """The usage chunk comes when it was asked for, last before [DONE], and only then (B22, B27)."""
        p = self.pair
        for options in (None, {"include_usage": False}, {}):
            events = p.stream("/v1/chat/completions", p.chat_body(stream_options=options))
            self.assertTrue(all(len(e["choices"]) == 1 and not e.get("usage") for e in events[:-1]))
        events = p.stream("/v1/chat/completions", p.chat_body(stream_options={"include_usage": True}))
        self.assertTrue(all(e["usage"] is None for e in events[:-2]))
        events = p.stream("/v1/chat/completions", p.chat_body(ignore_eos=True, stream_options={"continuous_usage_stats": True}))
        made = [e["usage"]["completion_tokens"] for e in events[:-1]]
        self.assertEqual((made, made[-1]), (sorted(made), 16))
        self.assertEqual(p.chat(stream_options={"include_usage": True}).status, 400)

    def test_choices_and_scores(self):
        p = self.pair
        r = p.completion(["a", "bb"], n=2, seed=3, temperature=1, max_tokens=5, ignore_eos=True).json()
        self.assertEqual([c["index"] for c in r["choices"]], [0, 1, 2, 3])
        self.assertEqual(r["usage"], dict(r["usage"], prompt_tokens=3, completion_tokens=20, total_tokens=23))
        alone = p.completion("bb", n=2, seed=3, temperature=1, max_tokens=5, ignore_eos=True).json()
        self.assertEqual([c["text"] for c in r["choices"][2:]], [c["text"] for c in alone["choices"]])
        made = p.completion("hello world", max_tokens=4, logprobs=0, ignore_eos=True).json()["choices"][0]
        ids = p.call("POST", "/tokenize", {"prompt": "hello world"}).json()["tokens"]
        more = p.completion(ids, echo=True, logprobs=3, max_tokens=4, ignore_eos=True).json()["choices"][0]
        only = p.completion(ids, echo=True, logprobs=3, max_tokens=0).json()["choices"][0]
        self.assertEqual(more["text"], "hello world" + made["text"])
        self.assertEqual(only["text"], "hello world")
        self.assertEqual(more["logprobs"]["token_logprobs"][0], None)
        self.assertEqual(more["logprobs"]["token_logprobs"][:len(ids)], only["logprobs"]["token_logprobs"])
        self.assertEqual(more["logprobs"]["token_logprobs"][len(ids):], made["logprobs"]["token_logprobs"])
        self.assertTrue(all(len(t) >= 3 for t in more["logprobs"]["top_logprobs"][1:]))
        c = p.chat(logprobs=True, top_logprobs=20, logit_bias={"284": -100}, temperature=0.01, top_p=0.1,
                   max_tokens=5, ignore_eos=True).json()["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(c), 5)
        for t in c:  # finite, sorted, the chosen one is there (B55)
            tops = [x["logprob"] for x in t["top_logprobs"]]
            self.assertEqual(tops, sorted(tops, reverse=True))
            self.assertTrue(-10000 < min(tops) and t["logprob"] <= 0)


if __name__ == "__main__":
    harness.main()
