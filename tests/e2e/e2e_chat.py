"""`sluice chat` and the words round it: streams, sums, mistakes, interruptions."""
import json
import os
import signal
import socket
import subprocess
import unittest

from harness import E2ETest, SLUICE, main, real_model, wait_until


class Words(E2ETest):
    def test_version_help_and_unknown_commands(self):
        for word in ("version", "--version"):
            code, out, _ = self.run_cli(word)
            self.assertEqual(code, 0)
            self.assertRegex(out, r"^sluice \d+\.\d+\.\d+\n$")
        code, out, _ = self.run_cli("help")
        self.assertEqual(code, 0)
        for word in ("up", "chat", "batch", "Exit codes", "Examples"):
            self.assertIn(word, out)
        for word in ("ctl", "top", "doctor"):  # not built, so not offered
            self.assertNotIn(word, out)
        for args in ((), ("help", "nonsense"), ("chta", "x"), ("batch",), ("batch", "rnu", "a", "b")):
            code, out, err = self.run_cli(*args)
            self.assertEqual(code, 1, args)
            self.assertEqual(out, "")
        self.assertIn("did you mean 'run'", err)
        for command in ("up", "chat", "batch"):
            asked = self.run_cli(command, "--help")
            self.assertEqual(asked[0], 0)
            self.assertEqual(asked, self.run_cli("help", command))

    def test_no_server(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        code, out, err = self.run_cli("chat", "hi", "--rpc", "tcp://127.0.0.1:%d" % port)
        self.assertEqual((code, out), (3, ""))
        self.assertIn("sluice up", err)
        code, _, err = self.run_cli("chat", "hi", "--rpc", "nonsense")
        self.assertEqual(code, 1)
        self.assertIn("--rpc", err)


class Chat(E2ETest):
    def test_streams_and_exits(self):
        s = self.server().ready()
        args = ("--rpc", s.rpc, "--max-tokens", "12", "--temperature", "0")
        code, text, err = self.run_cli("chat", "hello", *args)
        self.assertEqual((code, err), (0, ""))
        self.assertTrue(text.endswith("\n"))
        # The same answer by every way in, and over HTTP.
        code, out, err = self.run_cli("chat", "hello", *args, "--json", "--stats")
        self.assertEqual(code, 0)
        reply = json.loads(out)
        self.assertEqual(reply["text"].rstrip("\n"), text.rstrip("\n"))
        self.assertEqual(reply["model"], "tiny")
        self.assertIn(reply["finish_reason"], ("stop", "length"))
        self.assertGreaterEqual(reply["stats"]["total_ms"], reply["stats"]["ttft_ms"])
        self.assertRegex(err, r"^time to first token [\d.]+ ms, \d+ tokens \(prompt \d+\), ms per token p50 [\d.]+ "
                              r"max [\d.]+, total [\d.]+ ms\n$")
        for stdin_args in ((), ("-",)):
            code, out, _ = self.run_cli("chat", *stdin_args, *args, stdin_text="hello\n")
            self.assertEqual((code, out), (0, text))
        status, _, body = s.http("POST", "/v1/chat/completions", {
            "model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "temperature": 0})
        self.assertEqual(status, 200)
        self.assertEqual(body["choices"][0]["message"]["content"], reply["text"])
        self.assertEqual(body["usage"]["completion_tokens"], reply["usage"]["completion_tokens"])
        self.assertEqual(s.stop(), 0)

    def test_seed_system_class_and_raw(self):
        s = self.server().ready()
        args = ("chat", "hello", "--rpc", s.rpc, "--max-tokens", "8", "--temperature", "1", "--raw")
        one = self.run_cli(*args, "--seed", "7")
        self.assertEqual(one, self.run_cli(*args, "--seed", "7", "--class", "batch"))
        others = {self.run_cli(*args, "--seed", str(n))[1] for n in range(8, 14)}
        self.assertGreater(len(others), 1)
        self.assertEqual(self.run_cli(*args, "--system", "be kind")[0], 0)
        self.assertEqual(s.stop(), 0)

    def test_what_the_server_refuses(self):
        s = self.server().ready()
        code, out, err = self.run_cli("chat", "hi", "--rpc", s.rpc, "--model", "other")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("other", err)
        self.assertIn("404", err)
        code, out, err = self.run_cli("chat", "hi", "--rpc", s.rpc, "--class", "no-such-class")
        self.assertEqual((code, out), (2, ""))
        code, _, err = self.run_cli("chat", "", "--rpc", s.rpc)
        self.assertEqual(code, 1)
        self.assertEqual(s.stop(), 0)

    def slow(self):
        """A server of 50 ms a token, and the arguments of a question whose answer has 100 tokens."""
        fast = self.server("--engine", "null", "--null-step-us", "0", "--null-token-us", "0").ready()
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 100}
        seed = next(n for n in range(1000) if fast.http("POST", "/v1/chat/completions", dict(body, seed=n))[2]
                    ["choices"][0]["finish_reason"] == "length")
        self.assertEqual(fast.stop(), 0)
        s = self.server("--engine", "null", "--null-step-us", "50000").ready()
        return s, ("chat", "hello", "--rpc", s.rpc, "--max-tokens", "100", "--seed", str(seed))

    def gone(self, s):
        wait_until(lambda: s.metric("sluice:requests_live") == 0, "the request to be gone")
        self.assertLess(s.metric("vllm:generation_tokens_total"), 100)

    def test_ctrl_c_cancels(self):
        s, args = self.slow()
        for number in (signal.SIGINT, signal.SIGTERM):
            p = self.start(*args)
            p.wait_output()
            p.signal(number)
            self.assertEqual(p.wait(), 130)
            self.gone(s)
        self.assertEqual(s.stop(), 0)

    def test_a_reader_that_leaves(self):
        s, args = self.slow()
        p = subprocess.Popen([SLUICE, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
        os.read(p.stdout.fileno(), 1)
        p.stdout.close()
        self.assertEqual(p.wait(60), 0)
        self.assertEqual(p.stderr.read(), b"")
        p.stderr.close()
        self.gone(s)
        self.assertEqual(s.stop(), 0)

    def test_a_worker_killed_in_the_middle_costs_nothing_but_time(self):
        s, args = self.slow()
        whole = self.start(*args, "--raw")
        self.assertEqual(whole.wait(), 0, whole.tail())
        p = self.start(*args, "--raw")
        p.wait_output()
        os.kill(s.children()["worker"], signal.SIGKILL)
        self.assertEqual(p.wait(), 0, p.tail())
        self.assertEqual(p.out_bytes, whole.out_bytes)
        self.assertEqual(s.metric("sluice:resubmits_total"), 1)
        s.ready()
        self.assertEqual(s.stop(), 0)

    def test_a_gateway_killed_in_the_middle_is_told(self):
        s, args = self.slow()
        p = self.start(*args)
        p.wait_output()
        os.kill(s.children()["gateway"], signal.SIGKILL)
        self.assertEqual(p.wait(), 3, p.tail())
        self.assertIn("connection was lost", "\n".join(p.err))
        s.ready()
        self.assertEqual(s.stop(), 0)


class RealModel(E2ETest):
    @unittest.skipUnless(real_model(), "the real model is not there")
    def test_the_real_model_answers(self):
        s = self.server(model=real_model()).ready()
        args = ("chat", "What is 2+2?", "--rpc", s.rpc, "--temperature", "0", "--max-tokens", "24", "--json")
        code, out, err = self.run_cli(*args)
        self.assertEqual(code, 0, err)
        reply = json.loads(out)
        self.assertIn("4", reply["text"])
        self.assertEqual(reply["finish_reason"], "stop")
        os.kill(s.children()["worker"], signal.SIGKILL)
        s.ready()
        self.assertEqual(json.loads(self.run_cli(*args)[1])["text"], reply["text"])
        self.assertEqual(s.stop(), 0)


if __name__ == "__main__":
    main()
