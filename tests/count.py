#!/usr/bin/env python3
"""Adds up the JUnit files of every tier: each failure and each skip by name, then the one line that counts.

usage: count.py DIR     exit 1 when a test failed, a tier left no result, or nothing ran
A test that exits with 77 is skipped; the last line it printed that contains "skip" is its reason.
"""
import glob
import os
import re
import sys
import xml.etree.ElementTree as ET


def reason_of(case):
    out = case.findtext("system-out") or ""
    lines = [line.strip() for line in out.splitlines() if re.search("skip", line, re.I)]
    return lines[-1] if lines else "no reason given"


def read(path, totals):
    tier = os.path.basename(path)[: -len(".xml")]
    try:
        cases = list(ET.parse(path).getroot().iter("testcase"))
    except ET.ParseError as error:
        print(f"FAILED  {tier}: its result file is broken: {error}")
        totals["failed"] += 1
        return
    if not cases:
        print(f"FAILED  {tier}: no test ran")
        totals["failed"] += 1
    for case in cases:
        name, status = f"{tier}/{case.get('name')}", case.get("status")
        if case.find("failure") is not None or status == "fail":
            totals["failed"] += 1
            print(f"FAILED  {name}")
        elif case.find("skipped") is not None or status in ("notrun", "disabled"):
            totals["skipped"] += 1
            print(f"skipped {name}: {reason_of(case)}")
        else:
            totals["passed"] += 1


def main():
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.xml")))
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        read(path, totals)
    if totals["passed"] == 0 and totals["failed"] == 0:
        print("FAILED  nothing was tested")
        totals["failed"] = 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**totals))
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
