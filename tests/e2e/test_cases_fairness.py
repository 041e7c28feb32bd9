"""B07 of the shared cases: urgent work keeps every slot full, and one batch request comes."""
import threading
import time

import harness
from api_rig import ApiTest
from harness import wait_until

CLASSES = """classes:
  - {name: realtime, rank: 0, order: 0, ttft-ms: 1000, tpot-ms: 1000}
  - {name: batch, rank: 1, order: 1, preemptible: true, floor: 5, longest-wait-s: 30s}
"""


class Starvation(ApiTest):
    def test_b07_batch_beside_saturating_realtime(self):
        with open(self.path("classes.yaml"), "w") as f:
            f.write(CLASSES)
        p = self.open_pair("--max-promises", "0", "--classes", self.path("classes.yaml"),
                           worker=("--null-step-us", "2000", "--max-seqs", "2", "--classes", self.path("classes.yaml")))
        stop, served = threading.Event(), [0] * 6

        def urgent(i):
            while not stop.is_set():
                r = p.completion([9 + i, 10], max_tokens=20, ignore_eos=True)
                assert r.status == 200, r.body
                served[i] += 1
        threads = [threading.Thread(target=urgent, args=(i,), daemon=True) for i in range(6)]
        for t in threads:
            t.start()
        try:
            wait_until(lambda: min(served) >= 3, "saturation")
            began, before = time.monotonic(), sum(served)
            r = p.completion([7, 8, 9], max_tokens=6, ignore_eos=True, service_tier="flex")
            waited = time.monotonic() - began
            self.assertEqual(r.status, 200, r.body)
            self.assertLess(waited, 30)  # the configured longest wait
            self.assertGreater(sum(served), before)  # and it did not wait for an idle moment
            e = wait_until(lambda: self.explained(p, r.json()["id"]), "the explanation")
            self.assertEqual(e["class"], "batch")  # its wait made it nothing else
            self.assertGreaterEqual(p.metric("sluice:oldest_wait_seconds", 'class="batch"'), 0)
            self.assertGreaterEqual(p.metric("sluice:oldest_wait_seconds", 'class="realtime"'), 0)
        finally:
            stop.set()
            for t in threads:
                t.join()
        p.wait_idle()

    @staticmethod
    def explained(p, name):
        r = p.call("GET", "/v1/requests/%s/explain" % name)
        return r.json() if r.status == 200 else None


if __name__ == "__main__":
    harness.main()
