/* sim_fit.c - see sim_fit.h. */
#include "cli/sim_fit.h"

#include "base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEPS_OPEN 8
#define LEAST_STEPS 50
#define LINE_BYTES (4 << 20)
#define ROUNDS 6      /* of weighing the far-off steps down */
#define SWEEPS 3000   /* of coordinate descent */
#define HUBER 0.1     /* relative error from which a step counts less */
#define PAUSE_NS 5000000u /* as sim_device.c: a step after a longer one is cold */

struct fit_step { /* submitted, not ended */
    uint64_t id, ns;
    struct step_shape shape;
    uint8_t rank, kind;
    bool used, disturbed;
};

struct fit_sample {
    double x[COST_FEATURES], ns;
    uint8_t kind;
};

struct fit { /* while the log is read */
    struct sim_fit *out;
    struct fit_step open[STEPS_OPEN];
    struct fit_sample *samples;
    uint32_t n, cap;
    uint32_t *slots, n_slots; /* request of a slot; UINT32_MAX = none */
    struct sim_live_place place; /* its end_ns: the last step's */
    uint64_t copy_ns, copies;
};

static uint64_t get(const json_t *j, const char *key) {
    double v = json_number_value(json_object_get(j, key)); /* ids may be beyond 63 bits: all are reals */
    return v > 0 && v < 1e19 ? (uint64_t)v : 0;
}

static uint64_t item(const json_t *list, size_t i) {
    double v = json_number_value(json_array_get(list, i));
    return v > 0 && v < 1e19 ? (uint64_t)v : 0;
}

static int take_config(struct fit *f, const json_t *c, struct err *e) {
    struct sim_hardware *h = &f->out->hardware;
    h->max_seqs = (uint32_t)get(c, "max_seqs");
    h->max_slots = (uint32_t)get(c, "max_slots");
    h->n_ctx = (uint32_t)get(c, "n_ctx");
    h->block_tokens = (uint32_t)get(c, "block_tokens");
    h->n_blocks = (uint32_t)get(c, "n_blocks") - 1; /* its trash block */
    h->n_host = (uint32_t)get(c, "n_host");
    h->prefill_chunk = (uint32_t)get(c, "prefill_chunk");
    h->n_segments = (uint32_t)get(c, "n_segments");
    h->copy_ns = get(c, "copy_ns");
    f->n_slots = h->max_slots;
    f->slots = mem_array((size_t)f->n_slots + 1, sizeof(*f->slots));
    if (f->slots == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    memset(f->slots, 0xff, f->n_slots * sizeof(*f->slots));
    if (h->max_seqs == 0 || h->max_slots < h->max_seqs || h->block_tokens == 0 || h->n_segments == 0)
        return err_set(e, ERR_BAD_FILE, "its first line is no worker's configuration");
    return 0;
}

static struct fit_step *step_of(struct fit *f, uint64_t id) {
    for (int i = 0; i < STEPS_OPEN; i++)
        if (f->open[i].used && f->open[i].id == id)
            return &f->open[i];
    return NULL;
}

static void step_begins(struct fit *f, const json_t *j, uint64_t ns) {
    struct fit_step *s = NULL;
    for (int i = 0; i < STEPS_OPEN && s == NULL; i++)
        s = f->open[i].used ? NULL : &f->open[i];
    if (s == NULL)
        return;
    *s = (struct fit_step){.id = get(j, "step"), .ns = ns, .used = true, .rank = get(j, "rank") != 0};
    const json_t *span;
    size_t i;
    json_array_foreach(json_object_get(j, "spans"), i, span)
        step_shape_add(&s->shape, (uint32_t)item(span, 1), (uint32_t)item(span, 2), item(span, 5) != 0);
    s->kind = (uint8_t)sim_live_kind(&f->place, s->rank, s->shape.tokens, ns);
    s->shape.cold = ns - f->place.end_ns > PAUSE_NS;
}

static void step_ends(struct fit *f, const json_t *j, uint64_t ns) {
    struct fit_step *s = step_of(f, get(j, "step"));
    uint64_t from = s == NULL ? ns : s->ns > f->place.end_ns ? s->ns : f->place.end_ns;
    f->place.end_ns = ns;
    if (s == NULL)
        return;
    s->used = false;
    if (s->disturbed || ns <= from || json_is_true(json_object_get(j, "failed")) || f->n == f->cap)
        return;
    struct fit_sample *m = &f->samples[f->n++];
    uint32_t first = s->shape.tokens < COST_KNEE ? s->shape.tokens : COST_KNEE;
    *m = (struct fit_sample){.ns = (double)(ns - from), .kind = s->kind};
    m->x[COST_ONE] = 1;
    m->x[COST_FIRST] = first;
    m->x[COST_SPILL] = s->shape.tokens - first;
    m->x[COST_ROWS] = s->shape.rows;
    m->x[COST_READS] = (double)s->shape.reads * 1e-3;
    m->x[COST_PAIRS] = (double)s->shape.pairs * 1e-3;
    m->x[COST_COLD] = s->shape.cold;
    m->x[COST_HEAD] = s->shape.rows > 0;
}

static int comes(struct fit *f, const json_t *j, uint64_t ns, struct err *e) {
    struct sim_fit *o = f->out;
    double at = json_number_value(json_object_get(j, "slot")); /* -1 = it got none */
    uint32_t slot = at >= 0 && at < f->n_slots ? (uint32_t)at : UINT32_MAX;
    if (slot == UINT32_MAX || json_is_true(json_object_get(j, "refused")))
        return 0;
    if (o->n_requests == o->cap_requests) {
        uint32_t cap = o->cap_requests == 0 ? 1024 : o->cap_requests * 2;
        void *p = mem_realloc(o->requests, cap * sizeof(*o->requests));
        if (p == NULL)
            return err_set(e, ERR_NO_MEMORY, "out of memory");
        o->requests = p;
        o->cap_requests = cap;
    }
    f->slots[slot] = o->n_requests;
    o->requests[o->n_requests++] =
        (struct sim_fit_request){.at_ns = ns, .rank = get(j, "rank") != 0};
    return 0;
}

static void tokens(struct fit *f, const json_t *j, uint64_t ns) {
    uint64_t slot = get(j, "slot");
    if (slot >= f->n_slots || f->slots[slot] == UINT32_MAX)
        return;
    struct sim_fit_request *r = &f->out->requests[f->slots[slot]];
    if (r->first_ns == 0)
        r->first_ns = ns;
    if (strcmp(json_string_value(json_object_get(j, "finish")), "none") != 0)
        r->end_ns = ns;
}

static void disturb(struct fit *f, const json_t *j, bool again) {
    struct fit_step *s = step_of(f, get(j, "step"));
    if (s == NULL)
        return;
    s->disturbed = true;
    if (again)
        sim_live_continue(&f->place, s->rank);
}

static int action(struct fit *f, const json_t *j, const char *what, uint64_t ns) {
    if (strcmp(what, "step_submit") == 0)
        step_begins(f, j, ns);
    else if (strcmp(what, "step_park") == 0 || strcmp(what, "span_drop") == 0)
        disturb(f, j, false);
    else if (strcmp(what, "step_continue") == 0)
        disturb(f, j, true);
    else if (strcmp(what, "tokens") == 0 && json_is_string(json_object_get(j, "finish")))
        tokens(f, j, ns);
    return 0;
}

static int event(struct fit *f, const json_t *j, const char *what, uint64_t ns, struct err *e) {
    if (strcmp(what, "submit") == 0)
        return comes(f, j, ns, e);
    if (strcmp(what, "step_end") == 0) {
        step_ends(f, j, ns);
    } else if (strcmp(what, "copy_end") == 0) {
        f->copy_ns += get(j, "device_ns");
        f->copies++;
    }
    return 0;
}

static int line(struct fit *f, const json_t *j, uint64_t number, struct err *e) {
    const json_t *config = json_object_get(j, "config");
    const char *ev = json_string_value(json_object_get(j, "event"));
    const char *act = json_string_value(json_object_get(j, "action"));
    if ((config != NULL) != (number == 1))
        return err_set(e, ERR_BAD_FILE, "line %llu: %s", (unsigned long long)number,
                       number == 1 ? "no event log" : "another worker begins in it");
    if (config != NULL)
        return take_config(f, config, e);
    if (f->n == f->cap) {
        uint32_t cap = f->cap == 0 ? 4096 : f->cap * 2;
        void *p = mem_realloc(f->samples, cap * sizeof(*f->samples));
        if (p == NULL)
            return err_set(e, ERR_NO_MEMORY, "out of memory");
        f->samples = p;
        f->cap = cap;
    }
    if (ev != NULL)
        return event(f, j, ev, get(j, "ns"), e);
    return act != NULL ? action(f, j, act, get(j, "ns")) : 0;
}

/* A last line without its end is a worker's that was still writing: it is left out. */
static int lines(struct fit *f, FILE *in, struct err *e) {
    char *text = mem_alloc(LINE_BYTES);
    int rc = text != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "out of memory");
    for (uint64_t n = 1; rc == 0 && fgets(text, LINE_BYTES, in) != NULL; n++) {
        size_t got = strlen(text);
        if (got == 0 || text[got - 1] != '\n')
            break;
        json_t *j = json_loadb(text, got, JSON_DECODE_INT_AS_REAL, NULL);
        rc = j == NULL ? err_set(e, ERR_BAD_FILE, "line %llu is no JSON", (unsigned long long)n)
                       : line(f, j, n, e);
        json_decref(j);
    }
    mem_free(text);
    return rc;
}

/* ---- the model */

static double modelled(const double coef[COST_FEATURES], const struct fit_sample *s) {
    double ns = 0;
    for (int i = 0; i < COST_FEATURES; i++)
        ns += coef[i] * s->x[i];
    return ns > 1 ? ns : 1;
}

/* Sums of the weighted relative errors' normal equations. */
static void sums(const struct fit *f, const double coef[COST_FEATURES], bool weigh,
                 double a[COST_FEATURES][COST_FEATURES], double b[COST_FEATURES]) {
    memset(a, 0, COST_FEATURES * sizeof(a[0]));
    memset(b, 0, COST_FEATURES * sizeof(*b));
    for (uint32_t k = 0; k < f->n; k++) {
        const struct fit_sample *s = &f->samples[k];
        double scale = weigh ? modelled(coef, s) : s->ns, off = fabs(s->ns / scale - 1);
        double w = weigh && off > HUBER ? HUBER / off : 1;
        for (int i = 0; i < COST_FEATURES; i++) {
            b[i] += w * s->x[i] / scale * (s->ns / scale);
            for (int j = 0; j < COST_FEATURES; j++)
                a[i][j] += w * s->x[i] / scale * (s->x[j] / scale);
        }
    }
}

/* None below 0: each coordinate to its best in turn. */
static void descend(double coef[COST_FEATURES], double a[COST_FEATURES][COST_FEATURES],
                    const double b[COST_FEATURES]) {
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < COST_FEATURES; i++) {
            double r = b[i];
            for (int j = 0; j < COST_FEATURES; j++)
                r -= j == i ? 0 : a[i][j] * coef[j];
            coef[i] = a[i][i] > 0 && r > 0 ? r / a[i][i] : 0;
        }
    }
}

static void scatter(struct fit *f, uint32_t kind) {
    struct sim_live *l = &f->out->hardware.live;
    uint32_t all = 0, seen = 0;
    for (uint32_t i = 0; i < f->n; i++)
        all += f->samples[i].kind == kind;
    /* Too many: every so manyth stretch of neighbours is kept. */
    uint32_t part = (all + SIM_LIVE_RATIOS - 1) / SIM_LIVE_RATIOS;
    for (uint32_t i = 0; i < f->n && l->n_ratios[kind] < SIM_LIVE_RATIOS; i++) {
        const struct fit_sample *s = &f->samples[i];
        if (s->kind != kind || seen++ / SIM_LIVE_BLOCK % part != 0)
            continue;
        double r = s->ns / modelled(f->out->hardware.model.coef, s);
        l->ratios[kind][l->n_ratios[kind]++] = (float)(r < 0.01 ? 0.01 : r > 1000 ? 1000 : r);
    }
}

static int solve(struct fit *f, struct err *e) {
    struct sim_hardware *h = &f->out->hardware;
    double a[COST_FEATURES][COST_FEATURES], b[COST_FEATURES], error = 0;
    if (f->n < LEAST_STEPS)
        return err_set(e, ERR_BAD_FILE, "%u undisturbed steps in it; at least %d are needed", f->n,
                       LEAST_STEPS);
    h->model.kind = SIM_MODEL_LINEAR;
    for (int round = 0; round < ROUNDS; round++) {
        sums(f, h->model.coef, round > 0, a, b);
        descend(h->model.coef, a, b);
    }
    for (uint32_t i = 0; i < f->n; i++)
        error += fabs(f->samples[i].ns / modelled(h->model.coef, &f->samples[i]) - 1);
    f->out->n_steps = f->n;
    f->out->error = error / f->n;
    for (uint32_t kind = 0; kind < SIM_LIVE_KINDS; kind++)
        scatter(f, kind);
    if (f->copies > 0)
        h->copy_ns = f->copy_ns / f->copies;
    (void)snprintf(h->name, sizeof(h->name), "a worker measured over %u steps", f->n);
    return 0;
}

int sim_fit_read(struct sim_fit *out, const char *path, struct err *e) {
    struct fit f = {.out = out};
    memset(out, 0, sizeof(*out));
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return err_set(e, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    int rc = lines(&f, in, e);
    fclose(in);
    if (rc == 0)
        rc = solve(&f, e);
    mem_free(f.samples);
    mem_free(f.slots);
    if (rc != 0)
        sim_fit_deinit(out);
    return rc;
}

void sim_fit_deinit(struct sim_fit *f) {
    mem_free(f->requests);
    f->requests = NULL;
    f->n_requests = f->cap_requests = 0;
}
