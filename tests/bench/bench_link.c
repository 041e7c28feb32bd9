/* bench_link.c - the worker alone, driven at the link: isolation, yield, collapse, checks, orphan.
 *
 * usage: bench_link isolation|yield|collapse|checks|orphan [flags]    (--help)
 * Exit: 0 all bars met, 1 one missed or the run is void, 2 it could not be run, 77 no model.
 */
#include "tests/bench/bench_link.h"

#include "tests/common/testpaths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: bench_link isolation|yield|collapse|checks|orphan [flags]\n\n"
    "  isolation  real-time beside a full batch: ratios of latency, harvest, exactness (8 min)\n"
    "  yield      from a real-time request's sending to its first computed segment (4 min)\n"
    "  collapse   batch throughput at 1 to 24 times the pool's demand, with real-time waves\n"
    "             (11 min)\n"
    "  checks     what checksums and holds cost a worker that swaps (40 s)\n"
    "  orphan     a gateway that dies and returns under its name: adoption, nothing twice\n"
    "             (20 s)\n"
    "Worker on core 0, driver on core 1, nothing else should run. Exit 0: all bars met; 1: one\n"
    "missed, or void; 2: it could not be run; 77: no model.\n\n"
    "  --model FILE          default: what the tests use; exit 77 without one\n"
    "  --program FILE        sluice-worker (default: of this build)\n"
    "  --sluice FILE         for `bench engine` beside it (default: of this build)\n"
    "  --engine cpu|null     default cpu\n"
    "  --seed N --json --quick\n"
    "  --requests N          real-time requests an arm (400)\n"
    "  --target U            worker busy by real-time alone (0.40); --rate R fixes the rate\n"
    "  --seats N --kv-tokens N --prefill-chunk N --batch-in N --batch-out N\n"
    "  --seconds S --warm S  least length of an arm with batch; batch alone before it\n"
    "  --verify N            batch answers compared with the same alone (40)\n"
    "  --tries N             yield: counted tries of each kind (300); --context N (2048)\n"
    "  --away S              orphan: how long the gateway is gone (3)\n"
    "  --host-kv N           isolation, collapse, checks: positions of the host tier (8 x the pool)\n"
    "  --copy-gbps X         collapse: the throttled copy's rate\n"
    "  --worker-core N --driver-core N   default 0 and 1; -1 = anywhere\n"
    "  --only KIND           yield: prefill or decode; collapse: swap, throttled or recompute\n"
    "  --keep-log FILE       isolation, yield, checks: the event log stays there\n"
    "  --worker FLAG         a flag of the worker, as it is; repeatable\n";

struct flag_row {
    const char *name;
    enum { F_TEXT, F_U32, F_U64, F_INT, F_REAL, F_BOOL } kind;
    void *at;
};

static int set_flag(const struct flag_row *f, const char *text) {
    char *end = NULL;
    switch (f->kind) {
    case F_TEXT: *(const char **)f->at = text; return 0;
    case F_U32: *(uint32_t *)f->at = (uint32_t)strtoul(text, &end, 10); break;
    case F_U64: *(uint64_t *)f->at = strtoull(text, &end, 10); break;
    case F_INT: *(int *)f->at = (int)strtol(text, &end, 10); break;
    case F_REAL: *(double *)f->at = strtod(text, &end); break;
    case F_BOOL: *(bool *)f->at = true; return 0;
    }
    return end != text && *end == '\0' ? 0 : -1;
}

static int take_flags(struct bench_options *o, int argc, char **argv) {
    const char *engine = "cpu", *worker = NULL;
    uint32_t n_more = 0;
    const struct flag_row rows[] = {{"model", F_TEXT, &o->model},
                                    {"program", F_TEXT, &o->program},
                                    {"sluice", F_TEXT, &o->sluice},
                                    {"engine", F_TEXT, &engine},
                                    {"seed", F_U64, &o->seed},
                                    {"json", F_BOOL, &o->json},
                                    {"quick", F_BOOL, &o->quick},
                                    {"requests", F_U32, &o->requests},
                                    {"target", F_REAL, &o->target},
                                    {"rate", F_REAL, &o->rate},
                                    {"seats", F_U32, &o->seats},
                                    {"kv-tokens", F_U32, &o->kv_tokens},
                                    {"prefill-chunk", F_U32, &o->prefill_chunk},
                                    {"batch-in", F_U32, &o->batch_in},
                                    {"batch-out", F_U32, &o->batch_out},
                                    {"seconds", F_REAL, &o->seconds},
                                    {"warm", F_REAL, &o->warm_s},
                                    {"verify", F_U32, &o->verify},
                                    {"tries", F_U32, &o->tries},
                                    {"context", F_U32, &o->context},
                                    {"away", F_REAL, &o->away_s},
                                    {"host-kv", F_INT, &o->host_kv},
                                    {"copy-gbps", F_REAL, &o->copy_gbps},
                                    {"worker-core", F_INT, &o->worker_core},
                                    {"driver-core", F_INT, &o->driver_core},
                                    {"keep-log", F_TEXT, &o->log},
                                    {"only", F_TEXT, &o->only},
                                    {"worker", F_TEXT, &worker}};
    for (int i = 2; i < argc; i++) {
        const struct flag_row *f = NULL;
        size_t n = strcspn(argv[i], "=");
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
            if (n == strlen(rows[k].name) + 2 && strncmp(argv[i] + 2, rows[k].name, n - 2) == 0)
                f = &rows[k];
        const char *text = argv[i][n] == '=' ? argv[i] + n + 1 : NULL;
        if (f != NULL && f->kind != F_BOOL && text == NULL)
            text = i + 1 < argc ? argv[++i] : "";
        if (f == NULL || set_flag(f, text) != 0)
            return -1;
        if (f->at == &worker && n_more + 1 < DRIVER_MORE_MAX)
            o->more[n_more++] = worker;
    }
    o->null_engine = strcmp(engine, "null") == 0;
    return o->null_engine || strcmp(engine, "cpu") == 0 ? 0 : -1;
}

struct driver_config bench_worker(const struct bench_options *o) {
    struct driver_config c = {.program = o->program,
                            .model = o->model,
                            .null_engine = o->null_engine,
                            .worker_core = o->worker_core,
                            .driver_core = o->driver_core,
                            .threads = 1,
                            .seats = o->seats,
                            .kv_tokens = o->kv_tokens,
                            .prefill_chunk = o->prefill_chunk};
    memcpy(c.more, o->more, sizeof(c.more));
    return c;
}

void bench_add_flag(struct driver_config *c, const char *flag) {
    int n = 0;
    while (n + 1 < DRIVER_MORE_MAX && c->more[n] != NULL)
        n++;
    if (n + 1 < DRIVER_MORE_MAX)
        c->more[n] = flag;
}

void bench_first_flag(struct driver_config *c, const char *flag) {
    memmove(c->more + 1, c->more, (DRIVER_MORE_MAX - 2) * sizeof(*c->more));
    c->more[0] = flag;
    c->more[DRIVER_MORE_MAX - 1] = NULL;
}

bool bench_host_tier(const struct bench_options *o, struct driver_config *c) {
    static char flag[64];
    uint32_t n = o->host_kv < 0 ? c->kv_tokens * 8 : (uint32_t)o->host_kv;
    if (n == 0 || !driver_worker_knows(o->program, "host-kv-tokens"))
        return false;
    snprintf(flag, sizeof(flag), "--host-kv-tokens=%u", n);
    bench_add_flag(c, flag);
    return true;
}

/* ---- the report ---- */

static void add_json(struct bench_report *r, const char *name, double v) {
    buf_addf(&r->json, "%s\"%s\":", r->json.len > 0 ? "," : "", name);
    if (isfinite(v))
        buf_addf(&r->json, "%.9g", v);
    else
        buf_adds(&r->json, "null");
}

void bench_figure(struct bench_report *r, const char *name, double v) {
    add_json(r, name, v);
    if (!r->as_json)
        printf("%-44s %12.6g\n", name, v);
    fflush(stdout);
}

void bench_verdict(struct bench_report *r, const char *name, double v, double bar, bool most) {
    bool met = most ? v <= bar : v >= bar; /* NAN meets nothing */
    r->missed += !met;
    add_json(r, name, v);
    if (!r->as_json)
        printf("%-44s %12.6g  %s %g  %s\n", name, v, most ? "<=" : ">=", bar,
               met ? "met" : "MISSED");
    fflush(stdout);
}

void bench_void(struct bench_report *r, const char *why) {
    r->void_why++;
    buf_addf(&r->json, "%s\"void_%u\":\"%s\"", r->json.len > 0 ? "," : "", r->void_why, why);
    if (!r->as_json)
        printf("void: %s\n", why);
}

static int run(const struct bench_options *o, const char *sub, struct bench_report *r,
               struct err *e) {
    if (strcmp(sub, "isolation") == 0)
        return bench_isolation(o, r, e);
    if (strcmp(sub, "yield") == 0)
        return bench_yield(o, r, e);
    if (strcmp(sub, "collapse") == 0)
        return bench_collapse(o, r, e);
    if (strcmp(sub, "checks") == 0)
        return bench_checks(o, r, e);
    if (strcmp(sub, "orphan") == 0)
        return bench_orphan(o, r, e);
    return err_set(e, ERR_BAD_VALUE, "no such subcommand: %s", sub);
}

int main(int argc, char **argv) {
    static char program[4300], sluice[4300];
    struct err e = {0};
    struct bench_options o = {
        .seed = 1, .target = 0.40, .worker_core = 0, .driver_core = 1, .verify = 40, .away_s = 3,
        .host_kv = -1};
    struct bench_report r = {0};
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 2 || argv[1][0] == '-' || take_flags(&o, argc, argv) != 0) {
        fputs(usage, stderr);
        return 2;
    }
    snprintf(program, sizeof(program), "%s/bin/sluice-worker", test_build_dir());
    snprintf(sluice, sizeof(sluice), "%s/bin/sluice", test_build_dir());
    o.sluice = o.sluice != NULL ? o.sluice : sluice;
    o.program = o.program != NULL ? o.program : program;
    o.model = o.model != NULL ? o.model : test_model_path();
    if (o.model == NULL)
        return test_skip("no model: give --model FILE");
    r.as_json = o.json;
    int rc = run(&o, argv[1], &r, &e);
    if (rc != 0) {
        fprintf(stderr, "bench_link: %s\n", e.msg);
        return 2;
    }
    if (r.as_json)
        printf("{\"bench\":\"%s\",\"engine\":\"%s\",\"seed\":%llu,\"missed\":%u,\"void\":%s,%s}\n",
               argv[1], o.null_engine ? "null" : "cpu", (unsigned long long)o.seed, r.missed,
               r.void_why > 0 ? "true" : "false", buf_str(&r.json));
    else
        printf("%s: %u bars missed%s\n", argv[1], r.missed, r.void_why > 0 ? ", void" : "");
    buf_deinit(&r.json);
    return r.missed > 0 || r.void_why > 0;
}
