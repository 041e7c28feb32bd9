"""Several workers behind one gateway: prefixes stay where they are, load lies on all, one leaves and one joins under load."""
import signal
import threading

import harness
from api_rig import ApiTest
from harness import wait_until


class Pool(ApiTest):
    def pool(self, n, *flags):
        self.pair = self.open_pair("--max-promises", "0", worker=("--null-step-us", "1000", "--null-token-us", "200",
                                                                  "--max-seqs", "4", *flags), start_worker=False)
        self.workers = {}
        for i in range(n):
            self.join("w%d" % i)
        wait_until(lambda: self.pair.metric("sluice:workers_live") == n, "%d workers" % n)

    def join(self, name):
        flags = self.pair.worker_flags
        self.pair.worker_flags = (*flags, "--worker-name", name)
        self.pair.start_worker()
        self.pair.worker_flags = flags
        self.workers[name] = self.pair.worker

    def ask(self, prompt, n_out=4, **more):
        r = self.pair.completion(prompt, max_tokens=n_out, ignore_eos=True, **more)
        self.assertEqual(r.status, 200, r.body)
        return r.json()

    def worker_of(self, answer):
        def there():
            r = self.pair.call("GET", "/v1/requests/%s/explain" % answer["id"])
            return r.json() if r.status == 200 else None
        return wait_until(there, "the explanation")["worker"]

    def test_prefixes_stay(self):
        self.pool(3)
        family = lambda f, i: [3 + (41 * f + k * (f + 1)) % 250 for k in range(300)] + [3 + i, 4, 5, 6 + f]
        homes, cached, served = {}, 0, []
        for i in range(8):
            for f in range(6):
                a = self.ask(family(f, i))
                w = self.worker_of(a)
                served.append(w)
                if i > 0:
                    cached += a["usage"]["prompt_tokens_details"]["cached_tokens"] >= 256
                homes.setdefault(f, []).append(w)
        moved = sum(a != b for ws in homes.values() for a, b in zip(ws, ws[1:]))
        self.assertLessEqual(moved, 6, homes)
        self.assertGreaterEqual(cached, 7 * 6 - moved)
        self.assertEqual(len(set(served)), 3, homes)

    def test_one_leaves_and_one_joins(self):
        """A rolling restart loses no request."""
        self.pool(2)
        stop, answers, lock = threading.Event(), [], threading.Lock()

        def client(i):
            k = 0
            while not stop.is_set():
                a = self.ask([7 + i, 8 + k % 50, 9], 30, temperature=0)
                with lock:
                    answers.append(a)
                k += 1
        threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(8)]
        for t in threads:
            t.start()
        wait_until(lambda: len(answers) >= 16, "answers of both")
        self.workers["w0"].signal(signal.SIGTERM)
        self.assertEqual(self.workers["w0"].wait(), 0)
        at = len(answers)
        wait_until(lambda: len(answers) >= at + 8, "answers of the one that is left")
        self.join("w2")
        wait_until(lambda: self.pair.metric("sluice:workers_live") == 2, "the new one")
        at = len(answers)
        wait_until(lambda: len(answers) >= at + 40, "answers of both")
        stop.set()
        for t in threads:
            t.join()
        last = {self.worker_of(a) for a in answers[at + 16:]}
        self.assertIn("w2", last)
        self.assertNotIn("w0", last)
        self.pair.wait_idle()


if __name__ == "__main__":
    harness.main()
