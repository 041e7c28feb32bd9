"""Keys, classes and tenants at both doors, and the files changing under a running gateway.

Of the shared cases: B08 (nobody raises itself), B76 (doors are loopback), B93 (deny by default).
"""
import os
import signal

import harness
from harness import wait_until
from tenants_rig import TenantsTest

ALICE, BATCH_ONLY = "name: alice", "name: bulk, classes: [batch]"


class Keys(TenantsTest):
    def setUp(self):
        super().setUp()
        self.tenants(ALICE, BATCH_ONLY, "name: other, models: [gpt-x]")

    def test_right_and_wrong_keys(self):
        key = self.key("alice")
        p = self.open_tenants()
        for headers in (["Authorization: Bearer " + key], ["authorization: bearer   %s  " % key],
                        ["AUTHORIZATION: BEARER\t" + key], ["x-api-key: " + key]):
            self.assertEqual(p.completion(headers=headers).status, 200, headers)
            r = p.call("GET", "/v1/models", headers=headers)
            self.assertEqual([m["id"] for m in r.json()["data"]], [p.name])
        wrong = [[], ["Authorization: "], ["Authorization: Bearer"], ["Authorization: Bearer "],
                 ["Authorization: " + key], ["Authorization: Basic " + key], ["Authorization: Bearer %s x" % key],
                 ["Authorization: Bearer " + key[:-1]], ["Authorization: Bearer %sA" % key],
                 ["Authorization: Bearer " + key.upper()], ["x-api-key: "], ["x-api-key: Bearer " + key],
                 ["Authorization: Bearer " + key, "Authorization: Bearer " + key],
                 ["Authorization: Bearer " + key, "x-api-key: " + key],
                 ["Authorization: Bearer " + "k" * 20000], ["Proxy-Authorization: Bearer " + key]]
        bodies = set()
        for headers in wrong:
            r = p.completion(headers=headers)
            self.assertEqual(r.status, 401, (headers, r.body))
            self.assertEqual(r.code, "invalid_api_key")
            self.assertEqual(r.headers["www-authenticate"], 'Bearer realm="sluice"')
            bodies.add(r.body)
        self.assertEqual(len(bodies), 1)  # one shape, whatever was wrong
        self.assertEqual(set(r.json()["error"]), {"message", "type", "param", "code"})
        self.assertGreaterEqual(p.completion(headers=["Authorization: Bearer " + "k" * 100000]).status, 400)
        self.assertNotIn(key, p.gateway.tail())
        with open(self.keys_file) as f:
            self.assertNotIn(key[10:], f.read())

    def test_deny_by_default(self):
        """B93: no spelling of a path reaches a handler without a key."""
        p = self.open_pair("--tenants", self.tenants_file)
        body = p.completion_body()
        for path in ("/v1/completions", "//v1/completions", "/./v1/completions", "/v1//completions", "/V1/completions",
                     "/%2Fv1/completions", "/v1/completions/", "/v1/completions?x=1", "/v1/chat/completions", "/tokenize",
                     "/detokenize", "/v1/embeddings", "/health/../v1/completions", "/health/v1/completions",
                     "http://test/v1/completions", "/%76%31/completions", "/v1/models/", "/admin/keys"):
            r = p.call("POST", path, body)
            self.assertEqual(r.status, 401, path)
        for method, path in (("GET", "/v1/models"), ("GET", "/v1/models/" + p.name), ("GET", "/v1//models"), ("GET", "/metrics"),
                             ("HEAD", "/metrics"), ("GET", "/version"), ("OPTIONS", "/v1/models"), ("HEAD", "/v1/models"),
                             ("DELETE", "/v1/models"), ("GET", "/nowhere"), ("PUT", "/v1/completions")):
            self.assertEqual(p.call(method, path).status, 401, (method, path))
        for path in ("/health", "/ready", "/live", "/ping"):
            self.assertEqual(p.call("GET", path).status, 200, path)
        key = self.key("alice")
        self.tell(key, 200)
        auth = self.bearer(key)
        self.assertEqual(p.call("GET", "/metrics", headers=auth).status, 200)
        self.assertEqual(p.call("POST", "//v1/completions", body, auth).status, 404)
        self.assertEqual(p.call("GET", "/v1/completions", headers=auth).status, 405)

    def test_an_upload_without_a_key_is_not_kept(self):
        p = self.open_tenants()
        with p.raw() as c:
            r = c.request("POST", "/v1/completions", b"x" * (4 << 20)).reply()
            self.assertEqual(r.status, 401)
            self.assertEqual(c.request("GET", "/health").reply().status, 200)  # the connection is good
        with p.raw() as c:
            r = c.send(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\n").reply()
            self.assertEqual((r.status, c.continued), (401, False))

    def tell(self, key, status):
        wait_until(lambda: self.ask(key, max_tokens=1).status == status, "status %d" % status)

    def test_keys_live(self):
        """Added, listed and revoked while the gateway runs; what runs goes on."""
        first = self.key("alice")
        p = self.open_tenants(worker=("--null-step-us", "20000"))
        with p.open_stream("/v1/completions", p.completion_body(max_tokens=150, ignore_eos=True), self.bearer(first)) as c:
            self.assertEqual(c.head()[0], 200)
            second = self.key("alice")
            self.tell(second, 200)
            code, out, _ = self.keys("list", "--tenant", "alice")
            ids = [line.split()[0] for line in out.splitlines()[1:]]
            self.assertEqual((code, len(ids)), (0, 2))
            self.assertNotIn(first, out)
            self.assertEqual(self.keys("revoke", ids[0])[0], 0)
            self.tell(first, 401)
            self.assertEqual(self.ask(second).status, 200)
            self.assertEqual(list(c.events())[-1], "DONE")
        self.assertEqual(self.keys("revoke", ids[0])[0], 1)

    def test_tenants_live(self):
        key, bulk = self.key("alice"), self.key("bulk")
        p = self.open_tenants()
        self.put_tenants("tenants:\n  - {name: alice, weight: nonsense}\n")
        wait_until(lambda: p.metric("sluice:tenant_reload_errors_total") == 1, "the bad file to be seen")
        p.gateway.signal(signal.SIGHUP)
        wait_until(lambda: p.metric("sluice:tenant_reload_errors_total") == 2, "SIGHUP")
        said = lambda: [line for line in p.gateway.err if "not taken" in line]
        wait_until(lambda: len(said()) >= 2, "both lines of the log") # a thread reads them, behind the metric
        errors = said()
        self.assertEqual(len(errors), 2, errors)
        self.assertIn("tenant 'alice': weight", errors[0])
        self.assertEqual(self.ask(key).status, 200)  # the old table is in force
        self.put_tenants("")
        wait_until(lambda: p.metric("sluice:tenant_reload_errors_total") == 3, "the empty file to be seen")
        self.assertEqual(self.ask(bulk).status, 200)
        self.tenants(ALICE + ", max-output-tokens: 3")  # bulk is out
        self.tell(bulk, 401)
        r = self.ask(key, max_tokens=4)
        self.assertEqual((r.status, r.json()["error"]["param"]), (400, "max_tokens"))
        self.tenants(ALICE, BATCH_ONLY)
        self.tell(bulk, 200)  # its key was only asleep
        self.assertEqual(self.ask(key, max_tokens=4).status, 200)

    def test_models(self):
        key = self.key("other")
        p = self.open_tenants()
        auth = self.bearer(key)
        self.assertEqual(p.call("GET", "/v1/models", headers=auth).json()["data"], [])
        for r in (self.ask(key), p.chat(headers=auth), p.call("GET", "/v1/models/" + p.name, headers=auth),
                  p.call("POST", "/tokenize", {"model": p.name, "prompt": "x"}, auth)):
            self.assertEqual((r.status, r.json()["error"]["type"]), (403, "insufficient_permissions"))
        self.assertEqual(self.ask(key, model="nope").status, 404)
        self.assertEqual(self.rpc(key, [p.completion_body()])[0][0], 403)

    def test_command_line(self):
        self.assertEqual(self.keys("add")[0], 1)
        for words, say in ((("add", "--tenant", "nobody"), "no tenant 'nobody'"), (("add", "--tenant", "alice", "--class", "x"),
                           "no class 'x'"), (("add", "--tenant", "bulk", "--class", "realtime"), "none of these"),
                           (("revoke", "key_000000000000"), "no key"), (("revoke",), "which key"), (("lst",), "not add, list"),
                           (("add", "--tenant", "alice", "--note", "a\"b"), "--note")):
            code, out, err = self.keys(*words)
            self.assertEqual((code, out), (1, ""), words)
            self.assertIn(say, err)
        self.assertFalse(os.path.exists(self.keys_file))
        code, out, err = self.run_cli("keys", "list")
        self.assertEqual(code, 1)
        self.assertIn("--tenants", err)
        config = self.path("gateway.yaml")
        with open(config, "w") as f:
            f.write("tenants: %s\n" % self.tenants_file)
        made = self.parallel(8, lambda i: self.run_cli("keys", "add", "--config", config, "--tenant", "alice", "--note", "n%d" % i))
        self.assertEqual([m[0] for m in made], [0] * 8)
        code, out, _ = self.keys("list")
        self.assertEqual(len(out.splitlines()), 9)  # nobody's write was lost
        self.assertEqual(os.stat(self.keys_file).st_mode & 0o777, 0o600)

    def test_doors_are_loopback(self):
        """B76: what listens by default, and beside a tenants file only what was asked for."""
        p = self.open_tenants()
        inodes = set()
        for fd in os.listdir("/proc/%d/fd" % p.gateway.popen.pid):
            try:
                inodes.add(os.readlink("/proc/%d/fd/%s" % (p.gateway.popen.pid, fd)))
            except OSError:
                pass
        found = 0
        for name, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
            with open("/proc/net/" + name) as f:
                for row in list(f)[1:]:
                    col = row.split()
                    if col[3] == "0A" and "socket:[%s]" % col[9] in inodes:
                        found += 1
                        self.assertEqual(col[1].split(":")[0], loopback)
        self.assertEqual(found, 2)  # HTTP and RPC; workers come by a socket file

    def test_files_are_needed_at_start(self):
        for text, say in (("tenants:\n  - {name: a, weight: -1}\n", "weight"), ("", "no tenants")):
            self.put_tenants(text)
            for program in (harness.SLUICE,):
                code, _, err = self.run_cli("up", "--model", harness.TINY, "--tenants", self.tenants_file, "--state", self.path("s"))
                self.assertEqual(code, 1)
                self.assertIn(say, err)


class Classes(TenantsTest):
    """B08. The tier in the reply says what class it ran in: flex is below real-time."""

    def setUp(self):
        super().setUp()
        self.tenants(ALICE, BATCH_ONLY, "name: chat, classes: [realtime]")

    def tier(self, key, word=None, asked="auto"):
        headers = [] if word is None else ["X-Sluice-Class: " + word]
        r = self.ask(key, headers=headers, service_tier=asked, max_tokens=1)
        self.assertEqual(r.status, 200, r.body)
        return r.json()["service_tier"]

    def test_http(self):
        alice, bulk, chat, half = self.key("alice"), self.key("bulk"), self.key("chat"), self.key("alice", "batch")
        p = self.open_tenants()
        for key in (bulk, half):  # the tenant's classes, the key's classes: one rule
            for word in (None, "", "realtime", "batch"):
                for asked in ("auto", "priority", "flex", "default"):
                    self.assertEqual(self.tier(key, word, asked), "flex", (word, asked))
        for word in (None, "", "realtime", "batch"):
            self.assertEqual(self.tier(chat, word), "default")
        self.assertEqual([self.tier(alice, w) for w in (None, "", "realtime", "batch")], ["default", "default", "default", "flex"])
        self.assertEqual(self.tier(alice, None, "flex"), "flex")
        self.assertEqual(self.tier(alice, "realtime", "flex"), "default")
        r = self.ask(bulk, headers=["X-Sluice-Class: urgent"])
        self.assertEqual((r.status, r.json()["error"]["param"]), (400, "X-Sluice-Class"))
        self.assertEqual(p.completion(headers=["X-Sluice-Class: realtime"]).status, 401)  # the key comes first

    def test_rpc(self):
        alice, bulk = self.key("alice"), self.key("bulk")
        p = self.open_tenants()
        body = p.completion_body(service_tier="priority", max_tokens=1)
        for cls in ("realtime", "batch"):
            self.assertEqual(self.rpc(bulk, [body], cls)[0][1]["service_tier"], "flex")
        self.assertEqual(self.rpc(alice, [body], "realtime")[0][1]["service_tier"], "priority")
        for key in (None, "sk-sluice-nonsense"):
            status, got = self.rpc(key, [body])[0]
            self.assertEqual((status, got["error"]["code"]), (401, "invalid_api_key"))
        code, _, err = self.run_cli("chat", "hi", "--rpc", p.rpc)
        self.assertNotEqual(code, 0)
        self.assertIn("SLUICE_API_KEY", err)
        self.env["SLUICE_API_KEY"] = alice
        self.assertEqual(self.run_cli("chat", "hi", "--rpc", p.rpc, "--max-tokens", "2")[0], 0)

    def test_own_table(self):
        table = self.path("classes.yaml")
        with open(table, "w") as f:
            f.write("classes:\n  - {name: chat, rank: 0, order: 0, ttft-ms: 500}\n  - {name: agent, rank: 0, order: 1}\n"
                    "  - {name: bulk, rank: 1, order: 2, preemptible: true}\n  - {name: night, rank: 1, order: 3, preemptible: true}\n")
        self.tenants("name: a, classes: [agent, night]", "name: b")
        a, b = (self.run_cli("keys", "add", "--tenant", t, "--tenants", self.tenants_file, "--classes", table)[1].strip() for t in "ab")
        p = self.open_tenants("--classes", table, worker=("--classes", table))
        ran = lambda cls: p.metric("vllm:request_success_total", 'class="%s"' % cls)
        for key, word, want in ((a, "chat", "agent"), (a, "bulk", "night"), (a, None, "agent"), (a, "agent", "agent"),
                                (b, "night", "night"), (b, "bulk", "bulk"), (b, None, "chat")):
            before = ran(want)
            r = self.ask(key, headers=[] if word is None else ["X-Sluice-Class: " + word], max_tokens=1)
            self.assertEqual(r.status, 200, r.body)
            self.assertEqual(ran(want), before + 1, (word, want))
        self.assertEqual(self.ask(b, headers=["X-Sluice-Class: realtime"]).status, 400)


class Apart(TenantsTest):
    def test_prefix_cache(self):
        """A tenant finds its own blocks, never another's, whatever salt it sends."""
        self.tenants("name: a", "name: b, kv-quota: 4096")
        a, a2, b = self.key("a"), self.key("a"), self.key("b")
        self.open_tenants(engine="cpu")
        prompt = "The same long beginning, " * 20
        cached = lambda key, **more: self.ask(key, prompt, max_tokens=2, **more).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached(a), 0)
        self.assertGreater(cached(a2), 0)  # two keys, one tenant
        self.assertEqual(cached(b), 0)
        self.assertGreater(cached(b), 0)
        for salt in ("a", "b", "tenant-a"):
            self.assertEqual(cached(b, cache_salt=salt), 0)


if __name__ == "__main__":
    harness.main()
