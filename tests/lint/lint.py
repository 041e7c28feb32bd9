#!/usr/bin/env python3
"""Checks the tree against rules.py: usage lint.py [ROOT]. Prints file:line: rule: what, one a line.

Exit status: 0 = clean, 1 = violations. Only the standard library; reads files, changes nothing.
"""

import os
import re
import subprocess
import sys

import ctext
import rules

SKIP_DIRS = {".git", ".cache", "__pycache__", "build"}


def tree(root):
    """Paths of the project's files, relative: what git would commit, or all files where git cannot say."""
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                             capture_output=True, check=True).stdout
        inside = subprocess.run(["git", "-C", root, "rev-parse", "--show-prefix"],
                                capture_output=True, check=True).stdout.strip()
        names = [n for n in out.decode("utf-8", "replace").split("\0") if n]
        if names and not inside:
            return sorted(n for n in names if os.path.isfile(os.path.join(root, n)))
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d not in SKIP_DIRS and not d.startswith("build-")]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(found)


def room_of(path):
    """The room a file or header belongs to; None for tests and everything that is no room."""
    folder = os.path.dirname(path)
    while folder:
        if folder in rules.ARROWS:
            return folder
        folder = os.path.dirname(folder)
    return None


class Lint:
    def __init__(self, root):
        self.root = root
        self.files = tree(root)
        self.violations = []
        self.lengths = []  # of functions

    def report(self, path, line, rule, what):
        self.violations.append((path, line, rule, what))

    def run(self):
        self.check_top_level()
        for path in self.files:
            text = self.read(path)
            if text is None:
                continue
            self.check_words(path, text)
            name = os.path.basename(path)
            if re.search(r"\.(c|h|def|py|sh|cu)$", name):
                self.check_file_length(path, text)
            if re.search(r"\.(c|h|cu|cuh)$", name):
                self.check_c(path, text)
            if name == "CMakeLists.txt" or name.endswith((".cmake", ".json")):
                self.check_flags(path, text)
        self.check_p90()
        return self.violations

    def read(self, path):
        with open(os.path.join(self.root, path), "rb") as f:
            data = f.read()
        return None if b"\0" in data[:8192] else data.decode("utf-8", "replace")

    def check_top_level(self):
        for name in sorted({p.split("/")[0] for p in self.files}):
            if name not in rules.TOP_LEVEL and not name.startswith("."):
                self.report(name, 1, "top-level", "not an entry of the design's tree")

    def check_words(self, path, text):
        if path.startswith("tests/lint/"):  # holds the patterns and the planted ones
            return
        for pattern, why in rules.WORDS:
            for match in re.finditer(pattern, text):
                shown = match.group(1) if match.groups() else match.group(0)
                self.report(path, ctext.line_of(text, match.start()), "word", f"'{shown}' is {why}")

    def check_file_length(self, path, text):
        lines = text.count("\n")
        if lines > rules.FILE_LINES:
            self.report(path, lines, "file-length", f"{lines} lines, at most {rules.FILE_LINES}")

    def check_flags(self, path, text):
        for match in re.finditer(rules.FLAGS, text):
            self.report(path, ctext.line_of(text, match.start()), "flag",
                        f"{match.group(0)} changes results (rule E3)")

    def check_c(self, path, text):
        room = room_of(path)
        for line, name, lines in ctext.functions(text):
            self.lengths.append(lines)
            if lines > rules.FUNCTION_LINES:
                self.report(path, line, "function-length",
                            f"{name} has {lines} lines, at most {rules.FUNCTION_LINES}")
        if room is None:
            return
        for line, kind, header in ctext.includes(text):
            if kind == "<":
                self.check_library(path, room, line, header)
            else:
                self.check_arrow(path, room, line, header)
        self.check_calls(path, room, text)

    def check_arrow(self, path, room, line, header):
        if "/" not in header or not os.path.isfile(os.path.join(self.root, header)):
            self.report(path, line, "include", f'"{header}" is not a path from the root')
            return
        target = room_of(header)
        if target is None:
            self.report(path, line, "arrow", f"{room} may not include {header}")
        elif target != room and target not in rules.ARROWS[room] and \
                header not in rules.DOORS.get(room, []):
            self.report(path, line, "arrow", f"{room} may not include {target} ({header})")
        if room in rules.PURE and header in rules.PURE_HEADERS:
            self.report(path, line, "pure", f"{room} does no I/O, so no {header}")

    def check_library(self, path, room, line, header):
        for pattern, rooms in rules.FENCES:
            if re.fullmatch(pattern, header):
                if room not in rooms and path not in rooms:
                    where = ", ".join(rooms) if rooms else "tests"
                    self.report(path, line, "fence", f"<{header}> only in {where}")
                return
        if header not in rules.SYSTEM:
            self.report(path, line, "fence", f"<{header}> is no library of the design")
        elif room in rules.PURE and header not in rules.PURE_SYSTEM:
            self.report(path, line, "pure", f"{room} is pure, so no <{header}>")

    def check_calls(self, path, room, text):
        source = text.split("\n")
        if room in rules.PURE:
            for line, name in ctext.calls(text, rules.PURE_CALLS):
                self.report(path, line, "pure", f"{room} is pure, so no {name}()")
        if room in rules.CLOCKLESS and path not in rules.CLOCK_EXCEPT:
            for line, name in ctext.calls(text, rules.CLOCK_CALLS):
                self.report(path, line, "clock", f"{room} reads no clock, so no {name}()")
        if path not in rules.RAW_EXCEPT:
            for line, name in ctext.calls(text, rules.RAW_CALLS):
                if rules.RAW_MARK not in source[line - 1]:
                    self.report(path, line, "memory", f"{name}() goes round base/mem.h")
        if room in rules.LIBM_ROOMS:
            names = [n + suffix for n in rules.LIBM_CALLS for suffix in ("", "f", "l")]
            for line, name in ctext.calls(text, names):
                self.report(path, line, "libm", f"{name}() differs between machines (rule E3)")

    def check_p90(self):
        if len(self.lengths) < 100:
            return
        p90 = sorted(self.lengths)[len(self.lengths) * 9 // 10]
        if p90 > rules.FUNCTION_LINES_P90:
            self.report(".", 0, "function-length", f"p90 is {p90}, at most {rules.FUNCTION_LINES_P90}")


def main(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    lint = Lint(os.path.abspath(argv[1]) if len(argv) > 1 else os.path.dirname(os.path.dirname(here)))
    violations = lint.run()
    for path, line, rule, what in violations:
        print(f"{path}:{line}: {rule}: {what}")
    lengths = sorted(lint.lengths) or [0]
    print(f"lint: {len(lint.files)} files, {len(lint.lengths)} functions (median "
          f"{lengths[len(lengths) // 2]}, p90 {lengths[len(lengths) * 9 // 10]}, max {lengths[-1]} lines), "
          f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
