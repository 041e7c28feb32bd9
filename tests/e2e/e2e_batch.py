"""`sluice batch run`: every line once, whatever is killed; and files as people have them."""
import json
import os
import signal

from harness import E2ETest, main, wait_until


def line(custom_id, **body):
    body = dict({"model": "tiny", "messages": [{"role": "user", "content": "say %s" % custom_id}], "max_tokens": 16,
                 "ignore_eos": True, "seed": 3}, **body)
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})


class Batch(E2ETest):
    def write(self, name, text):
        with open(self.path(name), "w", newline="") as f:
            f.write(text)
        return self.path(name)

    def lines(self, n, **body):
        return self.write("in.jsonl", "".join(line("id-%d" % i, **body) + "\n" for i in range(n)))

    def results(self):
        """custom_id -> response of OUT, in which each id must stand once."""
        found = {}
        with open(self.path("out.jsonl"), "rb") as f:
            data = f.read()
        self.assertTrue(data == b"" or data.endswith(b"\n"))
        for row in map(json.loads, data.splitlines()):
            self.assertNotIn(row["custom_id"], found)
            self.assertEqual(set(row), {"id", "custom_id", "response", "error"})
            self.assertIsNone(row["error"])
            found[row["custom_id"]] = row["response"]
        return found

    def batch_args(self, s, *more):
        return ("batch", "run", self.path("in.jsonl"), self.path("out.jsonl"), "--rpc", s.rpc, "--json", *more)

    def count_out(self):
        try:
            with open(self.path("out.jsonl"), "rb") as f:
                return f.read().count(b"\n")
        except FileNotFoundError:
            return 0

    def texts(self):
        return {k: r["body"]["choices"][0]["message"]["content"] for k, r in self.results().items()}


class Whole(Batch):
    def test_thirty_lines_and_again(self):
        s = self.server().ready()
        self.lines(30)
        code, out, err = self.run_cli(*self.batch_args(s))
        self.assertEqual(code, 0, err)
        sums = json.loads(out)
        self.assertEqual((sums["total"], sums["done"], sums["failed"]), (30, 30, 0))
        self.assertEqual(sums["tokens"]["completion"], 30 * 16)
        results = self.results()
        self.assertEqual(len(results), 30)
        for r in results.values():
            self.assertEqual(r["status_code"], 200)
            self.assertEqual(r["body"]["object"], "chat.completion")
            self.assertEqual(r["body"]["usage"]["completion_tokens"], 16)
        # Nothing is run again, and no server is needed to find that out.
        self.assertEqual(s.stop(), 0)
        code, out, _ = self.run_cli(*self.batch_args(s))
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)["skipped"], 30)
        self.assertEqual(len(self.results()), 30)

    def test_a_line_that_fails_has_its_error_in_the_output(self):
        s = self.server().ready()
        self.write("in.jsonl", "\n".join([line("a"), line("b", model="other"), line("c", temperature=-5),
                                          line("d", stream=True)]))
        code, out, _ = self.run_cli(*self.batch_args(s))
        self.assertEqual(code, 2)
        self.assertEqual(json.loads(out)["failed"], 2)
        results = self.results()
        self.assertEqual({k: r["status_code"] for k, r in results.items()}, {"a": 200, "b": 404, "c": 400, "d": 200})
        self.assertEqual(results["b"]["body"]["error"]["code"], "model_not_found")
        self.assertEqual(self.run_cli(*self.batch_args(s))[0], 2)  # final: not tried again, not forgotten
        self.assertEqual(s.stop(), 0)

    def test_files_of_every_shape(self):
        s = self.server().ready()
        self.write("in.jsonl", "\ufeff\r\n" + line("a") + "\r\n\r\n" + line("\u00e4\n\u0000") + "\n \n" + line("c"))
        self.assertEqual(self.run_cli(*self.batch_args(s))[0], 0)
        self.assertEqual(set(self.results()), {"a", "\u00e4\n\u0000", "c"})
        completion = json.loads(line("x"))
        completion.update(url="/v1/completions", body={"model": "tiny", "prompt": "a", "max_tokens": 3})
        self.write("in.jsonl", json.dumps(completion))
        self.assertEqual(self.run_cli(*self.batch_args(s))[0], 0)
        self.assertEqual(self.results()["x"]["body"]["object"], "text_completion")
        self.assertEqual(s.stop(), 0)

    def test_broken_files_are_not_run(self):
        self.write("in.jsonl", line("a") + "\n\n{oops\n" + line("a") + "\n" + line("b").replace("POST", "PUT") + "\n")
        code, out, err = self.run_cli("batch", "run", self.path("in.jsonl"), self.path("out.jsonl"))
        self.assertEqual((code, out), (1, ""))
        for number in (3, 4, 5):
            self.assertIn("in.jsonl:%d: " % number, err)
        self.assertNotIn("in.jsonl:1: ", err)
        self.assertFalse(os.path.exists(self.path("out.jsonl")))

    def test_files_that_are_no_results_stay_untouched(self):
        self.lines(2)
        self.write("out.jsonl", "dear diary\n")
        code, _, err = self.run_cli("batch", "run", self.path("in.jsonl"), self.path("out.jsonl"))
        self.assertEqual(code, 1)
        self.assertIn("no result", err)
        with open(self.path("out.jsonl")) as f:
            self.assertEqual(f.read(), "dear diary\n")
        code, _, err = self.run_cli("batch", "run", self.path("in.jsonl"), self.path("in.jsonl"))
        self.assertEqual(code, 1)
        self.assertIn("same file", err)


class Broken(Batch):
    def slow(self):
        return self.server("--engine", "null", "--null-step-us", "5000", "--max-seqs", "4").ready()

    def whole_texts(self, s, n):
        """What an undisturbed run answers, in another file."""
        self.lines(n)
        self.assertEqual(self.run_cli(*self.batch_args(s))[0], 0)
        texts = self.texts()
        self.assertEqual(len(texts), n)
        os.unlink(self.path("out.jsonl"))
        return texts

    def kill_in_the_middle(self, name):
        s = self.slow()
        expected = self.whole_texts(s, 30)
        p = self.start(*self.batch_args(s))
        wait_until(lambda: self.count_out() >= 5, "the first results")
        self.assertLess(self.count_out(), 30)
        os.kill(s.children()[name], signal.SIGKILL)
        self.assertEqual(p.wait(), 0, p.tail())
        self.assertEqual(self.texts(), expected)
        s.ready()
        self.assertEqual(s.stop(), 0)
        return p

    def test_worker_killed_in_the_middle(self):
        self.kill_in_the_middle("worker")

    def test_gateway_killed_in_the_middle(self):
        p = self.kill_in_the_middle("gateway")
        self.assertIn("connected again", "\n".join(p.err))

    def test_ctrl_c_and_again(self):
        s = self.slow()
        expected = self.whole_texts(s, 30)
        p = self.start(*self.batch_args(s))
        wait_until(lambda: self.count_out() >= 5, "the first results")
        p.signal(signal.SIGINT)
        self.assertEqual(p.wait(), 130, p.tail())
        self.assertIn("goes on from here", "\n".join(p.err))
        self.assertTrue(json.loads(p.out[-1])["interrupted"])
        before = self.texts()
        self.assertLess(len(before), 30)
        wait_until(lambda: s.metric("vllm:num_requests_running") == 0, "the cancelled lines to be gone")
        code, out, _ = self.run_cli(*self.batch_args(s))
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)["skipped"], len(before))
        self.assertEqual(self.texts(), expected)
        self.assertEqual(s.stop(), 0)

    def test_killed_run_with_a_torn_line(self):
        s = self.slow()
        expected = self.whole_texts(s, 20)
        p = self.start(*self.batch_args(s))
        wait_until(lambda: self.count_out() >= 5, "the first results")
        p.popen.kill()
        p.wait()
        with open(self.path("out.jsonl"), "ab") as f:
            f.write(b'{"id":"batch_req_1","custom_id":"id-19","response":{"sta')
        code, _, err = self.run_cli(*self.batch_args(s))
        self.assertEqual(code, 0, err)
        self.assertIn("unfinished last line", err)
        self.assertEqual(self.texts(), expected)
        # No orderly stop: the drain would wait RPC_SILENCE_S for the killed client.

    def test_two_runs_on_one_output(self):
        s = self.slow()
        self.lines(30)
        p = self.start(*self.batch_args(s))
        wait_until(lambda: self.count_out() >= 1, "the first result")
        code, _, err = self.run_cli(*self.batch_args(s))
        self.assertEqual(code, 1)
        self.assertIn("in use by another run", err)
        self.assertEqual(p.wait(), 0, p.tail())
        self.assertEqual(len(self.results()), 30)
        self.assertEqual(s.stop(), 0)

    def test_a_server_that_never_comes_back(self):
        s = self.slow()
        self.lines(30)
        p = self.start(*self.batch_args(s, "--patience-s", "1"))
        wait_until(lambda: self.count_out() >= 5, "the first results")
        s.popen.kill()
        self.assertEqual(p.wait(), 3, p.tail())
        self.assertIn("goes on from here", "\n".join(p.err))
        self.assertGreaterEqual(len(self.results()), 5)


if __name__ == "__main__":
    main()
