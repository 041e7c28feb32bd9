"""The rules of the tree as data: rooms, arrows, fences, forbidden calls and words.

This is the table of the design ("Rooms and arrows"), word for word; lint.py checks it. A room is named
by the folder that holds it; the longest folder that fits a file wins. Change a rule here only together
with the design.
"""

# Room -> rooms it may include. Every room may include itself.
ARROWS = {
    "base": [],
    "config": ["base"],
    "model": ["base"],
    "proto": ["base"],
    "kvpool": ["base"],
    "scheduler": ["kvpool", "base"],
    "gateway": ["scheduler", "proto", "model", "config", "base"],
    "worker": ["scheduler", "kvpool", "proto", "model", "config", "base"],
    "worker/engine": ["model", "base"],
    "worker/engine/cpu": ["worker/engine", "model", "base"],
    "worker/engine/null": ["worker/engine", "model", "base"],
    "worker/engine/cuda": ["worker/engine", "model", "base"],
    "cli": ["scheduler", "kvpool", "model", "proto", "config", "base"],
}

# Room -> single headers of other rooms that it may include as well.
DOORS = {
    "worker": ["worker/engine/engine.h"],
    "worker/engine": ["kvpool/kvpool.h"],  # block tables, read only
    "cli": ["gateway/store_check.h", "worker/engine/engine.h", "gateway/store.h", "gateway/tenant_file.h"],
}

# Pattern of a library's headers -> rooms that may include them. A fence round worker does not hold its
# engine: that is a room of its own.
FENCES = [
    (r"zmq.*\.h", ["proto"]),
    (r"msgpack(\.h|/.*)", ["proto"]),
    (r"uv\.h|uv/.*", ["gateway", "worker", "cli"]),
    (r"microhttpd\.h", ["gateway"]),
    (r"curl/.*", ["cli"]),
    (r"jansson\.h", ["gateway", "cli", "model"]),
    (r"cyaml/.*", ["config"]),
    (r"pcre2.*\.h|utf8proc\.h", ["model"]),
    (r"sodium\.h|sodium/.*", ["gateway", "cli", "proto"]),
    (r"cuda.*|cublas.*", ["worker/engine/cuda"]),
    (r".*mmintrin\.h|immintrin\.h|x86intrin\.h|arm_neon\.h|cpuid\.h", ["worker/engine/cpu"]),
    (r"xxhash\.h|xxh3\.h", ["base"]),
    (r"sqlite3\.h|libpq-fe\.h", ["gateway/store_sql_priv.h"]),
    (r"check\.h", []),
]

# The C library and the operating system: free for all rooms but the pure ones.
SYSTEM = set("""
assert.h ctype.h errno.h fenv.h float.h inttypes.h limits.h locale.h math.h setjmp.h signal.h
stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h
strings.h time.h threads.h wchar.h arpa/inet.h dirent.h dlfcn.h fcntl.h ftw.h getopt.h glob.h
netdb.h netinet/in.h netinet/tcp.h poll.h pthread.h pwd.h sched.h semaphore.h spawn.h termios.h
unistd.h malloc.h sys/auxv.h sys/epoll.h sys/eventfd.h sys/file.h sys/inotify.h sys/ioctl.h
sys/mman.h sys/prctl.h sys/random.h sys/resource.h sys/select.h sys/signalfd.h sys/socket.h
sys/stat.h sys/statvfs.h sys/syscall.h sys/sysinfo.h sys/time.h sys/timerfd.h sys/types.h sys/uio.h
sys/un.h sys/utsname.h sys/wait.h linux/futex.h linux/sched.h
""".split())

# Pure rooms: policy and bookkeeping. They get time as an argument and memory at init.
PURE = ["scheduler", "kvpool"]
PURE_SYSTEM = set("""assert.h errno.h inttypes.h limits.h math.h stdalign.h stdarg.h stdatomic.h stdbool.h
stddef.h stdint.h stdio.h stdlib.h string.h""".split())
PURE_HEADERS = ["base/log.h"]
PURE_CALLS = """printf fprintf vprintf vfprintf dprintf puts fputs putc putchar fputc perror fopen fdopen
fread fwrite fflush fclose fgets scanf fscanf open openat read write pread pwrite close socket send recv
poll getenv setenv system exit _exit abort rand srand random drand48 sleep usleep nanosleep mmap munmap
sched_yield pthread_\\w+ thrd_\\w+ mtx_\\w+ log_line log_error log_warn log_info log_debug mem_fail_nth""".split()

# Clocks are read in the shells: gateway, worker, cli.
CLOCKLESS = ["base", "scheduler", "kvpool", "proto", "model", "config"]
CLOCK_CALLS = "clock_gettime clock_getres time gettimeofday clock timespec_get ftime uv_now uv_hrtime".split()
CLOCK_EXCEPT = ["base/log.c"]

# One memory door. A line that must free a library's own block says so in a comment holding RAW_MARK.
RAW_CALLS = """malloc calloc realloc reallocarray free strdup strndup aligned_alloc posix_memalign memalign
valloc asprintf vasprintf alloca""".split()
RAW_EXCEPT = ["base/mem.c"]
RAW_MARK = "library's block"

# Rule E3: libm's results differ from machine to machine; the engine has its own.
LIBM_ROOMS = ["worker/engine", "worker/engine/cpu", "worker/engine/null"]
LIBM_CALLS = "exp exp2 expm1 log log2 log10 log1p pow sin cos tan sincos tanh sinh cosh erf cbrt hypot".split()
FLAGS = r"-ffast-math|-Ofast|-funsafe-math-optimizations|-ffp-contract=(fast|on)"

FUNCTION_LINES = 70
FUNCTION_LINES_P90 = 40
FILE_LINES = 600

TOP_LEVEL = set("""gateway worker proto scheduler kvpool model config base cli deploy tests docs
CMakeLists.txt CMakePresets.json README.md LICENSE""".split())

# What names one machine or one person's set-up. Group 1, where there is one, is what is shown.
WORDS = [
    (r"(?<![\w.~$}\])>*-])(/(?:home|root|Users|work|mnt|media)/[\w.-]+)", "a path of one machine"),
    (r"(/tmp/\w{1,2}/)", "a path of one machine"),
    (r"(/tmp/b-\w+)", "a path of one machine"),
    (r"https?://[\w.-]+\.(?:internal|local|lan|corp|intranet)\b", "a host of one network"),
    (r"(--index-url|PIP_INDEX_URL|--extra-index-url)", "a registry of one network"),
    (r"(?i)\b(co-authored-by:|generated (?:by|with) (?:an? )?(?:ai|llm)\b)", "a trailer"),
]
