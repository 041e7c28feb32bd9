#!/usr/bin/env python3
"""Every mistake of base/fault.h, switched on, turns the exactness suite red; without one it is green.

usage: faults.py tiny
"""
import os
import re
import subprocess
import sys

BUILD = os.environ["SLUICE_BUILD_DIR"]
SOURCE = os.environ["SLUICE_SOURCE_DIR"]
EACH = 25  # interruptions of each kind: enough for every fault to show with this seed
SEED = "3"


def storm(fault):
    env = dict(os.environ, SLUICE_FAULT=fault)
    run = subprocess.run([os.path.join(BUILD, "tests", "test_storm"), "tiny", str(EACH), SEED], env=env,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300)
    why = [line for line in run.stdout.splitlines() if re.search("WRONG|FAILED|Assertion|wrong", line)]
    return run.returncode, why[0][:120] if why else "no output"


def main():
    with open(os.path.join(SOURCE, "base", "fault.h"), encoding="utf-8") as f:
        words = re.findall(r'X\([A-Z0-9_]+, "([a-z0-9-]+)"', f.read())
    missed = 0
    code, why = storm("none")
    print("none: exit %d, %s" % (code, why))
    if code != 0:
        return 1
    for word in words:
        code, why = storm(word)
        red = code in (3, 4, -6)  # a wrong answer, a check of the worker, an assertion
        missed += not red
        print("%s %s: exit %d, %s" % ("ok    " if red else "MISSED", word, code, why), flush=True)
    print("%d faults, %d missed" % (len(words), missed))
    return 1 if missed or len(words) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
