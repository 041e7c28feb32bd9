"""`sluice sim`: small traces of our own; steps and runs the same bytes, what changes change, what is refused."""
import json
import os
import random
import unittest

from harness import E2ETest, main

HEAD = "arrival_ms,input_tokens,output_tokens,class,tenant,session,block_tokens,prefix_ids\n"
CARD = """# an invented card and a small model
bandwidth_gb_s: 200
tflops: 40
launch_us: 300
memory_gb: 8
layers: 24
hidden: 2048
heads: 16
kv_heads: 8
head_dim: 128
ffn: 5632
vocab: 32000
max_seqs: 8
"""
SHARED = os.path.join(os.environ.get("SLUICE_SOURCE_DIR", "."), "..", "shared", "traces")


def poisson(seed, n, mean_ms, cls, tenant, prompt=(20, 300), out=(5, 80)):
    r, at, rows = random.Random(seed), 0.0, []
    for _ in range(n):
        at += r.expovariate(1 / mean_ms)
        rows.append((int(at), r.randint(*prompt), r.randint(*out), cls, tenant))
    return rows


class Sim(E2ETest):
    def setUp(self):
        super().setUp()
        self.card = self.write("card.yaml", CARD)

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def trace(self, *lists, name="trace.csv"):
        rows = sorted(row for rows in lists for row in rows)
        return self.write(name, HEAD + "".join("%d,%d,%d,%s,%s,,0,\n" % row for row in rows))

    def sim(self, *args, code=0):
        got, out, err = self.run_cli("sim", *args)
        self.assertEqual(got, code, err)
        return out if code == 0 else err

    def json(self, *args):
        return json.loads(self.sim(*args, "--json"))["runs"]

    def both_ways(self, *args):
        for form in ((), ("--json",)):
            runs, steps = self.sim(*args, *form), self.sim(*args, *form, "--steps")
            self.assertEqual(runs, steps)
            self.assertEqual(runs, self.sim(*args, *form))

    def test_steps_and_runs(self):
        chat = poisson(1, 300, 60, "realtime", "a")
        bulk = poisson(2, 200, 30, "batch", "b")
        for lists in ((chat,), (chat, bulk), (chat, poisson(3, 100, 100, "realtime", "c"), bulk)):
            path = self.trace(*lists)
            self.both_ways(path, "--hardware", self.card, "--workers", "3", "--check")
            self.both_ways(path, "--hardware", self.card, "--scale", "1.5", "--set", "floor:batch=10%", "--seed", "9")

    def test_figures(self):
        path = self.trace(poisson(1, 300, 60, "realtime", "a"), poisson(2, 50, 90, "batch", "b"))
        run = self.json(path, "--hardware", self.card, "--workers", "2")[0]
        by_class = {c["name"]: c for c in run["classes"]}
        by_tenant = {t["name"]: t for t in run["tenants"]}
        self.assertEqual(by_class["realtime"]["finished"], 300)
        self.assertEqual(by_class["batch"]["finished"], 50)
        self.assertEqual(by_class["realtime"]["output_tokens"], by_tenant["a"]["output_tokens"])
        self.assertGreater(run["utilisation"], 0.05)
        self.assertLessEqual(run["utilisation_max"], 1)
        # a decode step reads 24 x (2 x 2048 x 2048 + 2 x 2048 x 1024 + 3 x 2048 x 5632) weights and the head's 65.5 M
        step_ms = (1130.0 + 65.5) * 2 / 200 + 0.3
        self.assertGreater(by_class["realtime"]["gap_ms"]["p50"], step_ms)
        self.assertLess(by_class["realtime"]["gap_ms"]["p50"], 1.2 * step_ms)
        self.assertEqual(by_class["realtime"]["gap_ms"]["n"], by_class["realtime"]["output_tokens"] - 300)

    def test_one_more_worker(self):
        path = self.trace(poisson(1, 400, 60, "realtime", "a"))
        one, two = self.json(path, "--hardware", self.card, "--what-if", "workers=+1")
        self.assertEqual((one["workers"], two["workers"], two["run"]), (1, 2, "workers=+1"))
        self.assertLess(two["classes"][0]["ttft_ms"]["p99"], 0.7 * one["classes"][0]["ttft_ms"]["p99"])
        text = self.sim(path, "--hardware", self.card, "--what-if", "workers=+1")
        self.assertIn("as given -> workers=+1", text)

    def test_weights(self):
        """Two tenants with too much each: the one of more weight is done first, whichever it is."""
        lists = [[(0, 100, 60, "batch", t)] * 150 for t in ("A", "B")]
        path = self.trace(*lists)
        runs = self.json(path, "--hardware", self.card, "--what-if", "weight:A=4;weight:B=4")
        last = [{t["name"]: t["ttft_ms"]["p50"] for t in run["tenants"]} for run in runs]
        self.assertLess(abs(last[0]["A"] / last[0]["B"] - 1), 0.2)
        self.assertLess(last[1]["A"], 0.6 * last[1]["B"])
        self.assertLess(last[2]["B"], 0.6 * last[2]["A"])

    def test_floor(self):
        """Real-time that leaves nothing over: a floor makes batch's deadlines."""
        path = self.trace(poisson(1, 2000, 25, "realtime", "a"), [(0, 100, 20, "batch", "b")] * 40)
        runs = self.json(path, "--hardware", self.card, "--set", "deadline:batch=40", "--what-if",
                         "floor:batch=5%;floor:batch=20%")
        kept = [[c["attainment"] for c in run["classes"] if c["name"] == "batch"][0] for run in runs]
        self.assertLessEqual(kept[0], kept[1])
        self.assertLess(kept[0], kept[2])

    def test_prefixes(self):
        rows = "".join("%d,320,10,realtime,a,,16,1-15 %d-%d\n" % (i * 400, 100 + 5 * i, 104 + 5 * i) for i in range(50))
        path = self.write("prefix.csv", HEAD + rows)
        self.both_ways(path, "--hardware", self.card, "--check")
        self.assertEqual(self.json(path, "--hardware", self.card)[0]["counts"]["cache_hits"], 49 * 15)

    def test_measured_worker(self):
        worker = self.write("worker.json", '{"cost": {"one": 2e6, "first": 1e5, "spill": 1e5}, "max_seqs": 4}')
        path = self.trace(poisson(1, 100, 60, "realtime", "a"))
        self.both_ways(path, "--from-worker", worker)
        self.assertIn("two answers", self.sim(path, "--from-worker", worker, "--hardware", self.card, code=1))

    def test_mistakes(self):
        path = self.trace(poisson(1, 10, 60, "realtime", "a"))
        bad = self.write("bad.csv", HEAD + "0,5,5,realtime,a,,0,\n1,5,x,realtime,a,,0,\n")
        for args, says in (((), "which trace"), (("/nonexistent.csv",), "No such file"), ((bad,), "line 3"),
                           ((self.card,), "line 2"), ((path, "--what-if", "colour=3"), "colour=3"),
                           ((path, "--what-if", "weight:zz=3"), "no such tenant"), ((path, "--workers", "1001"), "workers"),
                           ((path, "--class", "royal"), "royal"), ((path, "--hardware", path), "line 1"),
                           ((path, "--from-worker", self.card), ""), ((path, "--set", "floor:realtime=5%"), "floor")):
            err = self.sim(*args, code=1)
            self.assertIn(says, err)
            self.assertEqual(err.count("\n"), 1, err)
        code, out, _ = self.run_cli("sim", "--help")
        self.assertEqual(code, 0)
        self.assertIn("--what-if", out)

    @unittest.skipUnless(os.path.isdir(SHARED), "no ../shared/traces here")
    def test_shared_traces(self):
        for name, more in (("derived_ci_60s", ()), ("derived_mix_2core_900s", ("--limit", "200")),
                           ("derived_prefix_2core_900s", ("--limit", "100")), ("vtc_arena", ("--limit", "300"))):
            self.both_ways(os.path.join(SHARED, name + ".csv"), "--workers", "2", *more)


if __name__ == "__main__":
    main()
