"""`sluice bench mixed` and `sluice bench knee` end to end on the virtual engine: the reports' arithmetic, identical answers,
nothing lost or doubled by kill -9, nothing left running. No timing decides anything here."""
import json
import math
import re
import socket

from harness import E2ETest, TINY, main

OWN = ["--model", TINY, "--engine", "null", "--seats", "4", "--batch-in", "24", "--batch-out", "24", "--warm", "0.3",
       "--seconds", "1", "--quiet"]
FAST = ["--", "--null-step-us", "500", "--null-token-us", "20"]


class Bench(E2ETest):
    def mixed(self, *flags, up=FAST):
        code, out, err = self.run_cli("bench", "mixed", *OWN, *flags, "--json", *up)
        self.assertIn(code, (0, 4, 5), err)
        return code, json.loads(out)

    def near(self, a, b):
        self.assertTrue(math.isclose(a, b, rel_tol=1e-6), (a, b))  # JSON has nine digits

    def check_ratio(self, r):
        if all(r.get(k) is not None for k in ("alone", "mixed", "ratio")):
            self.near(r["ratio"], r["mixed"] / r["alone"])
        if all(r[k] is not None for k in ("low", "high")):
            self.assertLessEqual(r["low"], r["high"])

    def check_run(self, run, requests):
        arms = {a["arm"]: a for a in run["arms"]}
        self.assertEqual(list(arms), ["B1", "A1", "M1", "M2", "A2", "B2"])
        for name, a in arms.items():
            self.assertEqual(a["arrivals"], 0 if name[0] == "B" else requests)
            self.assertEqual(a["answered"], a["arrivals"], name)
            self.assertEqual((a["refused"], a["broken"]), (0, 0))
            if name[0] != "A":
                self.assertGreater(a["batch_tokens_s"], 0)
        for what in ("TTFT", "gap", "E2E"):
            for kind in ("p50", "p90", "p99", "mean"):
                self.check_ratio(run[what][kind])
                self.assertGreater(run[what][kind]["alone"], 0)
        h = run["harvest"]
        self.near(h["ratio"], h["mixed"] / (h["alone"] * (1 - run["U"])))
        n, b = run["realtime_answers"], run["batch_answers"]
        self.assertEqual((n["compared"], n["identical"], n["unanswered"]), (2 * requests, 2 * requests, 0))
        self.assertEqual(b["identical"], b["compared"])
        self.assertGreater(b["compared"], 0)
        for key, promise in (("held", True), ("valid", False)):
            missed = [c["name"] for c in run["checks"] if c["promise"] == promise and c["state"] == "MISSED"]
            self.assertEqual(run[key], missed == [], missed)

    def test_mixed_with_kill(self):
        page = self.path("report.html")
        code, j = self.mixed("--requests", "20", "--rate", "20", "--kill", "--verify", "20", "--html", page)
        self.check_run(j["runs"][0], 20)
        k = j["kill"]
        self.assertEqual((k["lost"], k["doubled"]), (0, 0), k)
        self.assertGreater(k["connections_cut"], 0)
        self.assertEqual(k["answers"]["identical"], k["answers"]["compared"])
        self.assertGreaterEqual(k["answers"]["compared"], k["realtime"])
        run = j["runs"][0]
        self.assertEqual(code, 5 if not run["valid"] else 0 if run["held"] else 4)
        with open(page, encoding="utf-8") as f:
            html = f.read()
        self.assertGreaterEqual(html.count("<svg"), 5)
        self.assertEqual(set(re.findall(r"https?://[^'\"<\s]+", html)), {"http://www.w3.org/2000/svg"})
        self.assertNotIn("<script", html)

    def test_mixed_of_a_trace_at_another_server(self):
        trace = self.path("list.csv")
        s = self.server("--engine", "null", "--null-step-us", "500", "--null-token-us", "20", "--max-seqs", "4").ready()
        url = ["--url", "http://127.0.0.1:%d/v1" % s.port, "--engine", "null", "--seats", "4", "--batch-in", "24",
               "--batch-out", "24", "--warm", "0.2", "--seconds", "1", "--quiet", "--vocab", "200", "--json", "--verify", "6"]
        code, out, err = self.run_cli("bench", "mixed", *url, "--requests", "8", "--rate", "16", "--save-trace", trace,
                                      "--worker-pid", str(s.children()["worker"]))
        self.assertIn(code, (4, 5), err)
        first = json.loads(out)
        self.check_run(first["runs"][0], 8)
        code, out, err = self.run_cli("bench", "mixed", *url, "--trace", trace, "--as-recorded", "--prompt", "words")
        self.assertIn(code, (4, 5), err)
        again = json.loads(out)
        self.check_run(again["runs"][0], 8)
        unchecked = {c["name"] for c in again["runs"][0]["checks"] if c["state"] == "not checked"}
        self.assertLessEqual({"idle worker", "KV pool", "baseline TTFT", "baseline batch"}, unchecked)
        self.assertEqual(s.stop(), 0)

    def test_simulate(self):
        """The model of this run's worker is a file that `sluice sim` reads, on a trace that it reads."""
        hw, trace = self.path("hw.json"), self.path("arm.csv")
        code, j = self.mixed("--requests", "20", "--rate", "20", "--verify", "0", "--simulate", "--save-hardware", hw,
                             "--save-trace", trace)
        s = j["simulated"]
        self.assertGreater(s["steps"], 100)
        for name in ("alone_TTFT", "alone_finish", "mixed_TTFT", "mixed_finish"):
            for q in ("p50", "p90", "p99"):
                self.assertGreater(s[name][q]["sim_ms"], 0)
        code, out, err = self.run_cli("sim", trace, "--from-worker", hw, "--json")
        self.assertEqual(code, 0, err)
        rows = {c["name"]: c for c in json.loads(out)["runs"][0]["classes"]}
        self.assertEqual((rows["realtime"]["finished"], rows["batch"]["failed"]), (20, 0))
        code, out, err = self.run_cli("sim", trace, "--from-worker", hw, "--json", "--only", "realtime")
        self.assertEqual([c["name"] for c in json.loads(out)["runs"][0]["classes"]], ["realtime"])

    def test_knee(self):
        code, out, err = self.run_cli("bench", "knee", "--model", TINY, "--engine", "null", "--levels", "1,2,4", "--in",
                                      "16", "--out", "8", "--seconds", "0.5", "--warm", "0.1", "--quiet", "--json", *FAST)
        self.assertEqual(code, 0, err)
        j = json.loads(out)
        self.assertEqual([x["concurrency"] for x in j["levels"]], [1, 2, 4])
        for x in j["levels"]:
            self.assertGreater(x["done"], 0)
            self.assertEqual(x["failed"], 0)
            self.assertGreaterEqual(x["e2e_p99_ms"], x["e2e_p50_ms"])
            self.assertTrue(math.isfinite(x["tokens_s"]))
        self.assertLessEqual(j["recommended"], j["knee"])

    def test_what_is_refused(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            closed = s.getsockname()[1]
        for flags, code, word in (
                (["mixed"], 1, "--model"), (["knee"], 1, "--model"), (["other"], 1, "mixed"), ([], 1, "mixed"),
                (["mixed", "--model", "none.gguf"], 1, "none.gguf"),
                (["mixed", "--model", TINY, "--url", "http://127.0.0.1:1"], 1, "one of"),
                (["mixed", "--url", "http://127.0.0.1:1", "--kill"], 1, "--kill"),
                (["mixed", "--model", TINY, "--simulate", "--kill"], 1, "--kill"),
                (["mixed", "--url", "nonsense", "--quiet"], 2, "no URL"),
                (["mixed", "--model", TINY, "--engine", "gpu"], 1, "--engine"),
                (["mixed", "--model", TINY, "--prompt", "x"], 1, "--prompt"),
                (["mixed", "--model", TINY, "--trace", self.path("no.csv"), "--quiet"], 2, "no.csv"),
                (["mixed", "--model", TINY, "--quiet", "--", "--max-sqs", "3"], 2, "max-seqs"),
                (["mixed", "--url", "http://127.0.0.1:%d/v1" % closed, "--quiet"], 3, "/v1/models"),
                (["knee", "--url", "http://127.0.0.1:%d/v1" % closed, "--quiet"], 3, "/v1/models"),
                (["knee", "--model", TINY, "--levels", "4,2"], 1, "levels")):
            got, out, err = self.run_cli("bench", *flags)
            self.assertEqual(got, code, (flags, err))
            self.assertIn(word, err)
            self.assertEqual(out, "")

    def test_help(self):
        for word in ("mixed", "knee", "engine"):
            code, out, _ = self.run_cli("bench", word, "--help")
            self.assertEqual(code, 0)
            self.assertIn("Exit codes", out)
        self.assertIn("mixed", self.run_cli("bench", "--help")[1])


if __name__ == "__main__":
    main()
