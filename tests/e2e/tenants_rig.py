"""A gateway with a tenants file: keys made by the command line, requests in a tenant's name."""
import json
import os
import threading

from api_rig import ApiTest


class TenantsTest(ApiTest):
    def setUp(self):
        super().setUp()
        self.tenants_file = self.path("tenants.yaml")
        self.keys_file = self.path("keys.yaml")

    def tenants(self, *rows):
        """The tenants file, each row as `name: a, weight: 1`; replaced in one rename."""
        self.put_tenants("tenants:\n" + "".join("  - {%s}\n" % r for r in rows))

    def put_tenants(self, text):
        with open(self.tenants_file + ".t", "w") as f:
            f.write(text)
        os.rename(self.tenants_file + ".t", self.tenants_file)

    def keys(self, *argv):
        return self.run_cli("keys", *argv, "--tenants", self.tenants_file)

    def key(self, tenant, *classes):
        """A new key of the tenant."""
        more = [w for c in classes for w in ("--class", c)]
        code, out, err = self.keys("add", "--tenant", tenant, *more)
        self.assertEqual(code, 0, err)
        return out.strip()

    def open_tenants(self, *flags, **keys):
        return self.open_pair("--tenants", self.tenants_file, "--open-metrics", *flags, **keys)

    @staticmethod
    def bearer(key):
        return ["Authorization: Bearer %s" % key]

    def ask(self, key, prompt="hi", headers=(), **more):
        return self.pair.completion(prompt, self.bearer(key) + list(headers), **more)

    def rpc(self, key, bodies, cls="realtime", url="/v1/completions"):
        """Replies of the RPC door in order: (status, body)."""
        with open(self.path("in.jsonl"), "w") as f:
            for i, body in enumerate(bodies):
                f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": body}) + "\n")
        out_path = self.path("out.jsonl")
        if os.path.exists(out_path):
            os.unlink(out_path)
        old = self.env.get("SLUICE_API_KEY")
        self.env["SLUICE_API_KEY"] = key or ""
        try:
            code, _, err = self.run_cli("batch", "run", self.path("in.jsonl"), out_path, "--rpc", self.pair.rpc,
                                        "--class", cls, "--quiet")
        finally:
            self.env.pop("SLUICE_API_KEY")
            if old is not None:
                self.env["SLUICE_API_KEY"] = old
        self.assertIn(code, (0, 2), err)
        with open(out_path) as f:
            rows = {int(r["custom_id"]): r for r in map(json.loads, f)}
        return [(rows[i]["response"]["status_code"], rows[i]["response"]["body"]) for i in range(len(bodies))]

    def parallel(self, n, call):
        """Results of call(i), all at once."""
        out = [None] * n
        gate = threading.Barrier(n)

        def one(i):
            gate.wait()
            out[i] = call(i)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return out
