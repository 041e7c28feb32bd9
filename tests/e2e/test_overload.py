"""Refusals for overload and deadlines: 503 with a time that is kept, 504 before anything was computed."""
import threading
import time

import harness
from harness import E2ETest, wait_until


class Overload(E2ETest):
    def up(self, *flags):
        self.s = self.server("--engine", "null", "--threads", "1", "--max-seqs", "1", "--null-step-us", "20000",
                             "--null-token-us", "100", *flags).ready()
        self.http(2)  # the worker has told what steps cost
        wait_until(lambda: self.s.metric("sluice:steps_total") > 0, "a STATUS")
        return self.s

    def http(self, n_out, headers=None, seed=0):
        body = {"model": self.s.model, "prompt": [9, 10 + seed % 40, 11 + seed // 40], "max_tokens": n_out, "ignore_eos": True}
        return self.s.http("POST", "/v1/completions", body, headers)

    def flood(self, until):
        """Requests that keep the only seat taken, until told to stop."""
        def one(i):
            k = 0
            while not until.is_set():
                self.http(15, seed=100 * i + k)
                k += 1
        threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(8)]
        for t in threads:
            t.start()
        return threads

    def test_a_promise_is_kept(self):
        self.up()
        until = threading.Event()
        threads = self.flood(until)
        try:
            wait_until(lambda: self.s.metric("sluice:admission_refused_total") >= 8, "refusals")
            for _ in range(200):
                status, headers, body = self.http(15, seed=7777)
                if status == 503 and "retry-after" in headers:
                    break
            self.assertEqual((status, body["error"]["code"], body["error"]["type"]), (503, "overloaded", "server_error"))
            after = int(headers["retry-after"])
            self.assertGreaterEqual(after, 1)
            self.assertEqual(int(headers["retry-after-ms"]), 1000 * after)
            time.sleep(after)  # what the server asked for
            status, headers, body = self.http(15, seed=7777)
            self.assertEqual(status, 200, body)
            self.assertGreaterEqual(self.s.metric("sluice:admission_promises_kept_total"), 1)
        finally:
            until.set()
            for t in threads:
                t.join()
        self.assertEqual(self.http(2)[0], 200)  # nothing is left of it

    def test_it_can_be_turned_off(self):
        self.up("--max-promises", "0")
        results = [None] * 12

        def one(i):
            results[i] = self.http(10, seed=i)[0]
        threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(results, [200] * 12)

    def test_deadlines(self):
        self.up("--max-promises", "0")
        for bad in ("0", "-5", "1.5", "x", "", "604800001", "99999999999999999999"):
            status, _, body = self.http(2, {"X-Sluice-Deadline-Ms": bad})
            self.assertEqual((status, body["error"]["param"]), (400, "X-Sluice-Deadline-Ms"), bad)
        self.assertEqual(self.http(2, {"X-Sluice-Deadline-Ms": "60000"})[0], 200)
        status, _, body = self.http(1000, {"X-Sluice-Deadline-Ms": "300"})  # it runs when the time is over
        self.assertEqual((status, body["error"]["code"]), (504, "deadline_exceeded"))
        wait_until(lambda: self.s.metric("vllm:num_requests_running") == 0, "an idle server")
        made = self.s.metric("vllm:generation_tokens_total")
        long = threading.Thread(target=self.http, args=(60,))
        long.start()
        wait_until(lambda: self.s.metric("vllm:num_requests_running") >= 1, "the seat to be taken")
        status, _, body = self.http(1, {"X-Sluice-Deadline-Ms": "200"}, seed=5)  # it waits when the time is over
        self.assertEqual((status, body["error"]["code"]), (504, "deadline_exceeded"))
        long.join()
        wait_until(lambda: self.s.metric("vllm:num_requests_running") == 0, "an idle server")
        self.assertEqual(self.s.metric("vllm:generation_tokens_total") - made, 60)  # nothing for who waited in vain

    def test_our_refusals_are_no_requests_of_the_minute(self):
        """Ten that are too late for anybody, under three requests a minute: 504 each, and the other two still go."""
        with open(self.path("t.yaml"), "w") as f:
            f.write("tenants:\n  - {name: a, requests-per-minute: 3}\n")
        code, key, err = self.run_cli("keys", "add", "--tenant", "a", "--tenants", self.path("t.yaml"))
        self.assertEqual(code, 0, err)
        who = {"Authorization": "Bearer " + key.strip()}
        self.s = self.server("--engine", "null", "--threads", "1", "--null-token-us", "20000", "--tenants",
                             self.path("t.yaml"), "--open-metrics").ready()
        self.assertEqual(self.http(2, who)[0], 200)
        wait_until(lambda: self.s.metric("sluice:steps_total") > 0, "a STATUS")
        body = {"model": self.s.model, "prompt": [9] * 400, "max_tokens": 1}
        for _ in range(10):
            status, _, data = self.s.http("POST", "/v1/completions", body, {"X-Sluice-Deadline-Ms": "1", **who})
            self.assertEqual((status, data["error"]["code"]), (504, "deadline_exceeded"))
        self.assertEqual([self.http(1, who)[0] for _ in range(3)], [200, 200, 429])


if __name__ == "__main__":
    harness.main()
