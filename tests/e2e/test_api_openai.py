"""The official client library, unmodified, through its conformance checks, on the real model.

Needs the checks beside the source tree, the real model, and pip with an index to take the package from; what is missing
is a counted skip (77). The virtual environment is kept in the build folder for the next run.
"""
import os
import re
import subprocess
import sys
import venv

import harness
from api_rig import ApiTest
from harness import BUILD, SOURCE, real_model

CHECKS = os.path.join(SOURCE, "..", "shared", "api", "check_openai.py")
VENV = os.path.join(BUILD, "venv")
GROUPS = "core,stream,compl,errors,http"


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


def python():
    """The environment's interpreter with the package in it, or None."""
    exe = os.path.join(VENV, "bin", "python")
    has = lambda: subprocess.run([exe, "-c", "import openai"], capture_output=True).returncode == 0
    if os.path.exists(exe) and has():
        return exe
    try:
        venv.create(VENV, clear=True, with_pip=True)
        subprocess.run([exe, "-m", "pip", "install", "--quiet", "openai"], capture_output=True, timeout=240)
        return exe if has() else None
    except (OSError, subprocess.SubprocessError, SystemExit):
        return None


class OpenAI(ApiTest):
    def test_checks(self):
        p = self.open_pair(engine="cpu", model=real_model())
        r = subprocess.run([PYTHON, CHECKS, "http://127.0.0.1:%d/v1" % p.port, "--groups", GROUPS], capture_output=True,
                           text=True, timeout=240)
        sums = re.search(r"(\d+) passed, (\d+) failed, (\d+) skipped", r.stdout)
        self.assertTrue(sums, r.stdout[-2000:] + r.stderr[-2000:])
        failed = [line for line in r.stdout.splitlines() if line.startswith("FAIL")]
        self.assertEqual((failed, int(sums[2]), r.returncode), ([], 0, 0))
        self.assertGreaterEqual(int(sums[1]), 40)
        p.wait_idle()


if __name__ == "__main__":
    if not os.path.exists(CHECKS):
        skip("the checks are not beside the source tree")
    if not real_model():
        skip("the real model is not here")
    PYTHON = python()
    if PYTHON is None:
        skip("no openai package (pip or its index is not there)")
    harness.main()
