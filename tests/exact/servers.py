"""`sluice up` for the tests of this folder, on the harness of tests/e2e: one server a `with`."""
import os
import shutil
import sys
import tempfile
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import harness  # noqa: E402

NAME = "exact"  # of the model at every server here, so that no path reaches a reply


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def model_file(which):
    """The tiny model of the build, or the real one; without it the test is skipped and counted."""
    if which == "tiny":
        return harness.TINY if os.path.exists(harness.TINY) else skip("no tiny model in the build")
    return harness.real_model() or skip("no model file (SLUICE_MODEL, .cache/model)")


def has_avx2():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        words = set(f.read().split())
    return {"avx2", "fma", "f16c"} <= words


def spread():
    """--cpus that pin nothing: what runs at idle priority beside one computing thread needs a core too."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return "gateway=%s,worker=%s" % (cores, cores)


class Up(harness.Server):
    """with Up(model, flag, ...) as s: ready at the start, gone at the end, both its processes too."""

    def __init__(self, model, *flags):
        self.dir = tempfile.mkdtemp(prefix="sluice-exact-")
        self.mark = uuid.uuid4().hex
        self.env = dict(os.environ, **{harness.MARK: self.mark})
        super().__init__(self, "--name", NAME, "--max-promises", "0", *flags, model=model)

    def __enter__(self):
        try:
            return self.ready()
        except BaseException:
            self.leave(True)
            raise

    def __exit__(self, kind, value, trace):
        self.leave(kind is not None)

    def leave(self, failed):
        if failed:
            print(self.tail(), file=sys.stderr)
            self.popen.kill()
        code = self.wait() if failed else self.stop()
        for pid in harness.marked(self.mark):
            harness.wait_gone(pid)
        shutil.rmtree(self.dir, ignore_errors=True)
        if not failed and code != 0:
            raise AssertionError("the server ended with %d\n%s" % (code, self.tail()))


def nothing_left(server):
    """Every sequence and block was taken back."""
    gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    harness.wait_until(lambda: all(server.metric(g) == 0 for g in gauges), "gauges to be zero")
