#!/usr/bin/env python3
"""Shows that the lint can fail: plants each kind of violation in a small tree and expects exactly it,
by file, line and rule; and expects silence on a tree that looks suspicious but is clean."""

import os
import sys
import tempfile

import ctext
import lint

# What every planted tree starts from; clean.
PLAIN = {
    "README.md": "A tree.\n",
    "base/mem.h": "#include <stddef.h>\nvoid *mem_alloc(size_t n);\n",
    "base/mem.c": "#include \"base/mem.h\"\n#include <stdlib.h>\nvoid *mem_alloc(size_t n)\n{\n    return malloc(n);\n}\n",
    "base/log.h": "void log_line(const char *s);\n",
    "base/log.c": "#include <time.h>\nlong now(void) { return time(NULL); }\n",
    "kvpool/kvpool.h": "#include \"base/mem.h\"\n",
    "scheduler/queue.h": "#include \"kvpool/kvpool.h\"\n",
    "model/gguf.h": "",
    "proto/wire.h": "",
    "config/config.h": "",
    "gateway/http.h": "",
    "gateway/store.h": "",
    "worker/link.h": "",
    "worker/engine/engine.h": "",
    "worker/engine/backend.h": "",
    "worker/engine/cpu/ops.h": "",
    "worker/engine/null/null.h": "",
}


def body(lines):
    return "int f(void)\n{\n" + "    g();\n" * (lines - 3) + "}\n"


# (what, path, content, [(line, rule)]); the path is reported with each.
PLANTED = [
    # arrows
    ("base looks up", "base/x.c", '#include "config/config.h"\n', [(1, "arrow")]),
    ("leaf to leaf", "model/x.c", '\n#include "proto/wire.h"\n', [(2, "arrow")]),
    ("kvpool looks up", "kvpool/x.c", '#include "scheduler/queue.h"\n', [(1, "arrow")]),
    ("gateway into kvpool", "gateway/x.c", '#include "kvpool/kvpool.h"\n', [(1, "arrow")]),
    ("gateway into worker", "gateway/sub/x.c", '#include "worker/link.h"\n', [(1, "arrow")]),
    ("worker into gateway", "worker/x.c", '#include "gateway/http.h"\n', [(1, "arrow")]),
    ("worker past engine.h", "worker/x.c", '#include "worker/engine/backend.h"\n', [(1, "arrow")]),
    ("worker into a backend", "worker/x.c", '#include "worker/engine/cpu/ops.h"\n', [(1, "arrow")]),
    ("engine into a backend", "worker/engine/x.c", '#include "worker/engine/cpu/ops.h"\n', [(1, "arrow")]),
    ("backend into backend", "worker/engine/cpu/x.c", '#include "worker/engine/null/null.h"\n', [(1, "arrow")]),
    ("engine into worker", "worker/engine/x.c", '#include "worker/link.h"\n', [(1, "arrow")]),
    ("engine into config", "worker/engine/x.c", '#include "config/config.h"\n', [(1, "arrow")]),
    ("cli into the gateway", "cli/x.c", '#include "gateway/http.h"\n', [(1, "arrow")]),
    ("a room into tests", "base/x.c", '#include "tests/t.h"\n', [(1, "arrow")]),
    ("not from the root", "base/x.c", '#include "mem.h"\n', [(1, "include")]),
    ("no such header", "base/x.c", '#include "base/none.h"\n', [(1, "include")]),
    ("doors", "cli/x.c", '#include "gateway/store.h"\n#include "worker/engine/engine.h"\n', []),
    ("the worker's door", "worker/x.c", '#include "worker/engine/engine.h"\n', []),
    # fences
    ("zmq", "gateway/x.c", "#include <zmq.h>\n", [(1, "fence")]),
    ("msgpack", "gateway/x.c", "# include <msgpack.h>\n", [(1, "fence")]),
    ("uv in the engine", "worker/engine/x.c", "#include <uv.h>\n", [(1, "fence")]),
    ("jansson", "proto/x.c", "#include <jansson.h>\n", [(1, "fence")]),
    ("http library", "cli/x.c", "#include <microhttpd.h>\n", [(1, "fence")]),
    ("yaml", "cli/x.c", "#include <cyaml/cyaml.h>\n", [(1, "fence")]),
    ("pcre", "gateway/x.c", "#include <pcre2.h>\n", [(1, "fence")]),
    ("xxhash", "kvpool/x.c", "#include <xxhash.h>\n", [(1, "fence")]),
    ("simd", "worker/engine/x.c", "#include <immintrin.h>\n", [(1, "fence")]),
    ("simd by another name", "base/x.c", "#include <emmintrin.h>\n", [(1, "fence")]),
    ("test library", "base/x.c", "#include <check.h>\n", [(1, "fence")]),
    ("unknown library", "base/x.c", "#include <glib.h>\n", [(1, "fence")]),
    ("allowed", "worker/engine/cpu/x.c", "#include <immintrin.h>\n#include <sys/mman.h>\n", []),
    # pure rooms, clocks, memory
    ("clock header", "scheduler/x.c", "#include <time.h>\n", [(1, "pure")]),
    ("thread header", "kvpool/x.c", "#include <pthread.h>\n", [(1, "pure")]),
    ("log in a pure room", "scheduler/x.c", '#include "base/log.h"\n', [(1, "pure")]),
    ("printing", "kvpool/x.c", 'void f(void)\n{\n    printf("x");\n}\n', [(3, "pure")]),
    ("threads", "scheduler/x.c", "void f(void)\n{\n    pthread_mutex_lock(0);\n}\n", [(3, "pure")]),
    ("clock", "proto/x.c", "long f(void)\n{\n    return clock_gettime(0, 0);\n}\n", [(3, "clock")]),
    ("time()", "scheduler/x.c", "long f(void) { return time (0); }\n", [(1, "clock")]),
    ("the clock in a shell", "gateway/x.c", "long f(void) { return time(0); }\n", []),
    ("malloc", "model/x.c", "void *f(void)\n{\n\n    return malloc(1);\n}\n", [(4, "memory")]),
    ("free", "cli/x.c", "void f(void *p) { free(p); }\n", [(1, "memory")]),
    ("strdup", "kvpool/x.c", "char *f(char *p) { return strdup(p); }\n", [(1, "memory")]),
    ("a marked free", "gateway/x.c", "void f(void *p) { free(p); } /* jansson: the library's block */\n", []),
    ("members and names", "model/x.c", "void f(struct t *t) { t->free(t); t->a.malloc(1); mem_free(t); }\n", []),
    ("comments", "model/x.c", '/* malloc(1) */ // free(p)\nchar *s = "time(0) free(1)";\n', []),
    ("libm", "worker/engine/cpu/x.c", "float f(float x) { return expf(x) + sqrtf(x); }\n", [(1, "libm")]),
    # lengths
    ("70 lines", "base/x.c", body(70), []),
    ("71 lines", "base/x.c", "int a;\n\n" + body(71), [(3, "function-length")]),
    ("long after #if", "base/x.c", "void h(void)\n{\n#if X\n    if (a) {\n#else\n    if (b) {\n#endif\n    }\n}\n"
     + body(71), [(10, "function-length")]),
    ("long in a test", "tests/unit/x.c", "START_TEST(t) {\n" + "    g();\n" * 70 + "}\nEND_TEST\n",
     [(1, "function-length")]),
    ("a long table", "base/x.c", "static const int t[] = {\n" + "    1,\n" * 90 + "};\nint f(void) { return 0; }\n", []),
    ("braces in text", "base/x.c", "char *s = \"{\"; char c = '{';\n#define X {\n" + body(71), [(3, "function-length")]),
    ("600 lines", "base/x.c", "\n" * 600, []),
    ("601 lines", "base/x.c", "\n" * 601, [(601, "file-length")]),
    # the tree, words, flags
    ("a stray file", "notes.txt", "x\n", [(1, "top-level")]),
    ("a stray folder", "src/x.c", "", [(1, "top-level")]),
    ("a dot file", ".editorconfig", "x\n", []),
    ("a home", "docs/X.md", "see\n/ho" + "me/someone/x\n", [(2, "word")]),
    ("a mount", "deploy/x.sh", "cd /wo" + "rk/main\n", [(1, "word")]),
    ("a private host", "docs/X.md", "http://pypi.corp.inter" + "nal/x\n", [(1, "word")]),
    ("a variable's folder", "deploy/x.sh", "cd $X/home/y ${X}/work/y ../work/z\n", []),
    ("fast math", "base/CMakeLists.txt", "add(-O2\n -ffast-math)\n", [(2, "flag")]),
]


def violations(files):
    with tempfile.TemporaryDirectory() as root:
        for path, content in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(content)
        return lint.Lint(root).run()


def check_functions():
    """The scanner sees every shape of function, and nothing else."""
    text = ("struct s {\n    int (*call)(void);\n};\nenum { A, B };\n#define M(x) \\\n    { x }\n"
            "extern \"C\" {\nstatic int one(int a, struct s *b) { return 0; }\n}\n"
            "const char *\ntwo(void)\n{\n    if (x) {\n        y = (struct s){0};\n    }\n    return \"}\";\n}\n"
            "static const struct s t = {.call = three};\nint decl(void);\n"
            "__attribute__((noinline)) void four(int a[static 4]) {\n}\n")
    got = [(name, lines) for _, name, lines in ctext.functions(text)]
    return got == [("one", 1), ("two", 8), ("four", 2)], got


def main():
    failed = 0
    clean = violations(dict(PLAIN))
    if clean:
        failed += 1
        print("not clean:", clean)
    for what, path, content, expected in PLANTED:
        files = dict(PLAIN, **{"tests/t.h": ""})
        files[path] = content
        got = violations(files)
        want = sorted((path if rule != "top-level" else path.split("/")[0], line, rule)
                      for line, rule in expected)
        if sorted(v[:3] for v in got) != want:
            failed += 1
            print(f"{what}: expected {want}, got {got}")
    ok, got = check_functions()
    if not ok:
        failed += 1
        print("functions:", got)
    print(f"lint selftest: {len(PLANTED) + 2} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
