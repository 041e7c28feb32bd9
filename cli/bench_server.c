/* bench_server.c - see bench_server.h. */
#include "cli/bench_server.h"
#include "cli/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_MS 8000

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    remove(path);
    return 0;
}

/* In the new process: `sluice up` in a group of its own (Ctrl-C is ours to handle), its log into a
 * file. */
static void become(char **argv, int out_fd, const char *dir, pid_t parent) {
    char log[96];
    sigset_t none;
    snprintf(log, sizeof(log), "%s/up.log", dir);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    int null = open("/dev/null", O_RDONLY), fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (null < 0 || fd < 0)
        _exit(127);
    dup2(null, 0);
    dup2(out_fd, 1);
    dup2(fd, 2);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static int spawn(struct bench_server *s, const char *const *flags, struct err *e) {
    const char *argv[BENCH_SERVER_FLAGS_MAX + 16] = {"sluice",
                                                     "up",
                                                     "--http",
                                                     "127.0.0.1:0",
                                                     "--rpc",
                                                     "tcp://127.0.0.1:0",
                                                     "--workers-endpoint",
                                                     "tcp://127.0.0.1:0",
                                                     "--state",
                                                     s->dir};
    int ends[2], n = 10;
    for (int i = 0; flags[i] != NULL && i < BENCH_SERVER_FLAGS_MAX; i++)
        argv[n++] = flags[i];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set(e, ERR_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become((char **)(uintptr_t)argv, ends[1], s->dir, parent);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return err_set(e, ERR_IO, "cannot start `sluice up`: %s", strerror(errno));
    }
    s->up = pid;
    s->out_fd = ends[0];
    return 0;
}

/* The last line of its log: why it did not start. */
static int not_ready(struct bench_server *s, const char *what, struct err *e) {
    char path[96], line[300], last[300] = "it said nothing";
    snprintf(path, sizeof(path), "%s/up.log", s->dir);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (line[strspn(line, "\n ")] != '\0')
            snprintf(last, sizeof(last), "%.*s", (int)strcspn(line, "\n"), line);
    if (f != NULL)
        fclose(f);
    return err_set(e, ERR_IO, "`sluice up` %s: %s", what, last);
}

/* "READY http://... rpc ... model NAME" */
static int read_ready(struct bench_server *s, int fd, double timeout_ms, struct err *e) {
    double until = clock_ms() + timeout_ms;
    char text[1024];
    size_t n = 0;
    while (n < sizeof(text) - 1 && memchr(text, '\n', n) == NULL) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = until - clock_ms();
        if (left <= 0)
            return not_ready(s, "is not ready in time", e);
        if (poll(&p, 1, (int)left + 1) < 0)
            return err_set(e, ERR_CANCELLED, "interrupted");
        ssize_t got = p.revents != 0 ? read(fd, text + n, sizeof(text) - 1 - n) : -1;
        if (got == 0)
            return not_ready(s, "did not start", e);
        n += got > 0 ? (size_t)got : 0;
    }
    text[n] = '\0';
    if (sscanf(text, "READY %500s rpc %*s model %255s", s->url, s->model) != 2)
        return not_ready(s, "says something else than READY", e);
    return 0;
}

int bench_server_start(struct bench_server *s, const char *const *flags, double timeout_ms,
                       struct err *e) {
    const char *tmp = getenv("TMPDIR");
    memset(s, 0, sizeof(*s));
    s->out_fd = -1;
    snprintf(s->dir, sizeof(s->dir), "%s/sluice-bench-XXXXXX",
             tmp != NULL && strlen(tmp) < 32 ? tmp : "/tmp");
    if (mkdtemp(s->dir) == NULL) {
        s->dir[0] = '\0';
        return err_set(e, ERR_IO, "cannot make a state directory: %s", strerror(errno));
    }
    if (spawn(s, flags, e) != 0) {
        bench_server_stop(s);
        return -1;
    }
    int rc = read_ready(s, s->out_fd, timeout_ms, e);
    if (rc == 0 && bench_server_find(s) != 0)
        rc = err_set(e, ERR_IO, "cannot find the processes of `sluice up`");
    if (rc != 0)
        bench_server_stop(s);
    return rc;
}

void bench_server_stop(struct bench_server *s) {
    double until = clock_ms() + STOP_MS;
    if (s->up > 0) {
        kill(s->up, SIGTERM);
        while (waitpid(s->up, NULL, WNOHANG) == 0) {
            if (clock_ms() > until)
                kill(s->up, SIGKILL); /* its children die with it */
            poll(NULL, 0, 10);
        }
    }
    if (s->dir[0] != '\0') {
        nftw(s->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        if (s->out_fd >= 0)
            close(s->out_fd);
    }
    memset(s, 0, sizeof(*s));
}

static void name_of(pid_t pid, char *out, size_t cap) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f != NULL && fgets(out, (int)cap, f) != NULL)
        out[strcspn(out, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
}

int bench_server_find(struct bench_server *s) {
    char path[64], name[32];
    int pid;
    s->gateway = s->worker = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)s->up, (int)s->up);
    FILE *f = fopen(path, "re");
    while (f != NULL && fscanf(f, "%d", &pid) == 1) {
        name_of(pid, name, sizeof(name));
        if (strcmp(name, "sluice-gateway") == 0)
            s->gateway = pid;
        else if (strcmp(name, "sluice-worker") == 0)
            s->worker = pid;
    }
    if (f != NULL)
        fclose(f);
    return s->gateway > 0 && s->worker > 0 ? 0 : -1;
}

double bench_cpu_s(pid_t pid) {
    clockid_t id;
    struct timespec t;
    if (pid <= 0 || clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0)
        return -1;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Sum over the labels of `name`, of those samples whose labels hold both texts. */
static double sum_where(const char *text, const char *name, const char *one, const char *two,
                        bool *found) {
    double sum = 0;
    size_t n = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, name, n) == 0 && (line[n] == '{' || line[n] == ' ')) {
            const char *value = line[n] == '{' ? strchr(line, '}') : line + n;
            const char *a = strstr(line, one), *b = strstr(line, two);
            bool here = value != NULL && a != NULL && a <= value && b != NULL && b <= value;
            if (here && (end == NULL || value < end)) {
                sum += strtod(value + 1, NULL);
                *found = true;
            }
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return sum;
}

static double sum_of(const char *text, const char *name, bool *found) {
    return sum_where(text, name, "", "", found);
}

void bench_counters_parse(struct bench_counters *m, const char *text) {
    bool ours = false, other = false;
    memset(m, 0, sizeof(*m));
    m->running = sum_of(text, "vllm:num_requests_running", &other);
    m->waiting = sum_of(text, "vllm:num_requests_waiting", &other);
    m->preemptions = sum_of(text, "vllm:num_preemptions_total", &other);
    m->cache_hits = sum_of(text, "vllm:prefix_cache_hits_total", &other);
    m->parks = sum_of(text, "sluice:steps_parked_total", &ours);
    m->drops = sum_of(text, "sluice:spans_dropped_total", &ours);
    m->swap_ins = sum_of(text, "sluice:swap_ins_total", &ours);
    m->recomputes = sum_of(text, "sluice:recomputes_total", &ours);
    m->steps = sum_of(text, "sluice:steps_total", &ours);
    m->busy_s = sum_of(text, "sluice:worker_busy_seconds_total", &ours);
    m->resubmits = sum_of(text, "sluice:resubmits_total", &ours);
    m->errors = sum_of(text, "sluice:request_errors_total", &ours);
    m->aborted = sum_of(text, "sluice:requests_aborted_total", &ours);
    m->ledger_s = sum_where(text, "sluice:ledger_seconds_total", "class=\"realtime\"", "", &other);
    m->ledger_batch_s = sum_where(text, "sluice:ledger_seconds_total", "class=\"realtime\"",
                                  "cause=\"waited_for_batch\"", &other);
    m->known = ours;
}

int bench_counters_get(struct bench_counters *m, struct http_client *c, struct err *e) {
    struct http_call call = {.path = "/metrics"};
    memset(m, 0, sizeof(*m));
    int rc = http_client_wait(c, &call, 10e3, e);
    if (rc == 0 && call.status == 200)
        bench_counters_parse(m, buf_str(&call.reply));
    http_call_deinit(&call);
    return rc;
}

int bench_server_quiet(struct http_client *c, double timeout_ms, struct err *e) {
    double until = clock_ms() + timeout_ms;
    struct bench_counters m;
    for (;;) {
        if (bench_counters_get(&m, c, e) != 0)
            return -1;
        if (m.known && m.running + m.waiting == 0)
            return 0;
        if (!m.known || clock_ms() > until)
            break;
        for (double next = clock_ms() + 100; clock_ms() < next;)
            http_client_turn(c, next);
    }
    if (m.known)
        return err_set(e, ERR_TIMEOUT, "the server does not become idle");
    for (double next = clock_ms() + 1000; clock_ms() < next;)
        http_client_turn(c, next);
    return 0;
}

int bench_server_model(struct http_client *c, char *out, size_t cap, struct err *e) {
    struct http_call call = {.path = "/v1/models"};
    int rc = http_client_wait(c, &call, 10e3, e);
    json_t *j = rc == 0 ? json_loadb(call.reply.p, call.reply.len, 0, NULL) : NULL;
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(j, "data"), 0), "id"));
    if (rc == 0 && (id == NULL || strlen(id) >= cap))
        rc = err_set(e, ERR_PROTOCOL,
                     "the server names no model at /v1/models (status %d); give one "
                     "with --name",
                     call.status);
    else if (rc == 0)
        snprintf(out, cap, "%s", id);
    json_decref(j);
    http_call_deinit(&call);
    return rc;
}
