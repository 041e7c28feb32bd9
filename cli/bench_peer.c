/* bench_peer.c - see bench_peer.h. */
#include "cli/bench_peer.h"

#include "cli/json_value.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX (4u << 20)
#define LIST_TEXT 128
#define BATCHED "llama-batched-bench"

extern char **environ;

static int read_all(int fd, struct buf *out) {
    char part[8192];
    for (;;) {
        ssize_t n = read(fd, part, sizeof(part));
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            buf_add(out, part, (size_t)n);
    }
}

int bench_peer_capture(char *const argv[], struct buf *out, struct err *e) {
    int pipes[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return err_set(e, ERR_IO, "pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    if (rc != 0) {
        close(pipes[0]);
        return err_set(e, ERR_IO, "cannot start %s: %s", argv[0], strerror(rc));
    }
    rc = read_all(pipes[0], out);
    close(pipes[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc != 0 || out->bad)
        return err_set(e, ERR_IO, "%s: its output could not be read", argv[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(e, ERR_IO, "%s failed (%s %d)", argv[0],
                       WIFEXITED(status) ? "exit code" : "signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return 0;
}

static int add(struct bench_case *c, const char *name, double v) {
    if (!(v > 0) || c->skipped)
        return 0;
    c->peer_name = name;
    bench_samples_add(&c->peer, v);
    return 1;
}

static bool wants(const struct bench_engine *b, const struct bench_case *c, uint32_t threads) {
    if (c->threads != threads)
        return false;
    return c->kind == BENCH_PREFILL ? c->context == b->prefill : c->context == b->contexts.v[0];
}

/* One measured object: prompt of n_prompt tokens, or n_gen tokens, each after n_depth others. */
static int take_object(struct bench_engine *b, uint32_t threads, const json_t *o) {
    json_int_t prompt = json_integer_value(json_object_get(o, "n_prompt"));
    json_int_t gen = json_integer_value(json_object_get(o, "n_gen"));
    json_int_t depth = json_integer_value(json_object_get(o, "n_depth"));
    double v = json_number_value(json_object_get(o, "avg_ts"));
    int taken = 0;
    for (uint32_t i = 0; i < b->n_cases; i++) {
        struct bench_case *c = &b->cases[i];
        if (!wants(b, c, threads))
            continue;
        if (c->kind == BENCH_PREFILL && gen == 0 && depth == 0 && prompt == c->tokens)
            taken += add(c, "prompt", v);
        else if (c->kind == BENCH_DECODE && depth == c->context && c->seqs == 1 && gen > 0)
            taken += add(c, "generate", v);
        else if (c->kind == BENCH_DECODE && depth == c->context && c->seqs > 1 && gen == 0 &&
                 prompt == c->seqs)
            taken += add(c, "pp", v);
    }
    return taken;
}

int bench_peer_take_json(struct bench_engine *b, uint32_t threads, const char *p, size_t n,
                         struct err *e) {
    int taken = 0;
    json_error_t why;
    json_t *list = json_loadb(p, n, 0, &why);
    if (!json_is_array(list)) {
        json_decref(list);
        return err_set(e, ERR_BAD_JSON, "the peer printed no JSON list: is it llama-bench?");
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        taken += take_object(b, threads, json_array_get(list, i));
    json_decref(list);
    return taken;
}

/* Rows "| PP | TG | B | N_KV | T_PP | S_PP | T_TG | S_TG | ...": S_TG is tokens/s of B sequences.
 * */
int bench_peer_take_table(struct bench_engine *b, uint32_t threads, const char *text) {
    int taken = 0;
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        double v[8];
        line += *line == '\n';
        if (sscanf(line, "| %lf | %lf | %lf | %lf | %lf | %lf | %lf | %lf", &v[0], &v[1], &v[2],
                   &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
            continue;
        for (uint32_t i = 0; i < b->n_cases; i++) {
            struct bench_case *c = &b->cases[i];
            if (wants(b, c, threads) && c->kind == BENCH_DECODE && c->seqs > 1 &&
                fabs(v[2] - c->seqs) < 0.5 && fabs(v[0] - c->context) < 0.5)
                taken += add(c, "batched", v[7]);
        }
    }
    return taken;
}

/* The numbers of sequences above one, as "4,16,64". */
static void several(const struct bench_engine *b, char *out, size_t cap) {
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < b->seqs.n && at < cap; i++)
        if (b->seqs.v[i] > 1)
            at += (size_t)snprintf(out + at, cap - at, "%s%u", at > 0 ? "," : "", b->seqs.v[i]);
}

/* `llama-batched-bench` in the peer's folder; "" when it is not there. */
static void batched_path(const struct bench_engine *b, char *out, size_t cap) {
    const char *slash = strrchr(b->peer, '/');
    int n = slash != NULL ? (int)(slash - b->peer) + 1 : 0;
    snprintf(out, cap, "%.*s" BATCHED, n, b->peer);
    if (n == 0 || access(out, X_OK) != 0)
        out[0] = '\0';
}

struct call {
    char threads[16], prompt[LIST_TEXT], gen[16], depth[16];
};

static int call_bench(struct bench_engine *b, uint32_t threads, struct call *k, struct err *e) {
    struct buf out;
    buf_init(&out, OUTPUT_MAX);
    snprintf(k->threads, sizeof(k->threads), "%u", threads);
    char *argv[] = {(char *)(uintptr_t)b->peer, "-m", (char *)(uintptr_t)b->peer_model, "-t",
                    k->threads, "-p", k->prompt, "-n", k->gen, "-d", k->depth, "-r", "1", "-o",
                    "json", NULL};
    int rc = bench_peer_capture(argv, &out, e);
    if (rc == 0)
        rc = bench_peer_take_json(b, threads, out.p, out.len, e) >= 0 ? 0 : -1;
    buf_deinit(&out);
    return rc;
}

static int call_batched(struct bench_engine *b, uint32_t threads, char *path, char *seqs,
                        struct err *e) {
    char t[16], context[16], gen[16], total[24];
    struct buf out;
    buf_init(&out, OUTPUT_MAX);
    snprintf(t, sizeof(t), "%u", threads);
    snprintf(context, sizeof(context), "%u", b->contexts.v[0]);
    snprintf(gen, sizeof(gen), "%d", BENCH_DECODE_STEPS);
    snprintf(total, sizeof(total), "%llu",
             (unsigned long long)bench_list_last(&b->seqs) *
                 (b->contexts.v[0] + BENCH_DECODE_STEPS + 32));
    char *argv[] = {path, "-m", (char *)(uintptr_t)b->peer_model, "-t", t, "-c", total, "-b",
                    "2048", "-ub", "512", "-npp", context, "-ntg", gen, "-npl", seqs, NULL};
    int rc = bench_peer_capture(argv, &out, e);
    if (rc == 0 && bench_peer_take_table(b, threads, buf_str(&out)) == 0)
        rc = err_set(e, ERR_BAD_FILE, "%s printed no table that is known", path);
    buf_deinit(&out);
    return rc;
}

static int run_threads(struct bench_engine *b, uint32_t threads, struct err *e) {
    char seqs[LIST_TEXT], batched[4096];
    struct call k = {.gen = "0", .depth = "0"};
    several(b, seqs, sizeof(seqs));
    batched_path(b, batched, sizeof(batched));
    snprintf(k.prompt, sizeof(k.prompt), "%u", b->prefill);
    if (call_bench(b, threads, &k, e) != 0)
        return -1;
    snprintf(k.prompt, sizeof(k.prompt), "%s", seqs[0] != '\0' && !batched[0] ? seqs : "0");
    snprintf(k.gen, sizeof(k.gen), "%d", b->seqs.v[0] == 1 ? BENCH_DECODE_STEPS : 0);
    snprintf(k.depth, sizeof(k.depth), "%u", b->contexts.v[0]);
    if ((b->seqs.v[0] == 1 || !batched[0]) && call_bench(b, threads, &k, e) != 0)
        return -1;
    return seqs[0] != '\0' && batched[0] ? call_batched(b, threads, batched, seqs, e) : 0;
}

int bench_peer_run(struct bench_engine *b, struct err *e) {
    for (uint32_t t = 0; t < b->threads.n; t++)
        if (run_threads(b, b->threads.v[t], e) != 0)
            return -1;
    return 0;
}
