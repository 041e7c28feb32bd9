/* sim_roofline.c - from a data sheet, or a measured worker's figures, to a step's cost and a worker's limits. */
#include "cli/sim_hardware_impl.h"

#include <math.h>
#include <string.h>

#define GIB 1e9 /* data sheets count in powers of ten */
#define BLOCKS_MEASURED 4096 /* where nothing says how many */

static double get(const struct sim_values *v, enum sim_key_index k, double otherwise) {
    return v->given[k] ? v->v[k] : otherwise;
}

/* What both kinds of file may say of the worker. n_blocks is set before. */
static int limits(struct sim_hardware *h, const struct sim_values *v, struct err *e) {
    h->block_tokens = (uint32_t)get(v, KEY_BLOCK_TOKENS, 16);
    h->max_seqs = (uint32_t)get(v, KEY_MAX_SEQS, 64);
    h->max_slots = (uint32_t)get(v, KEY_MAX_SLOTS, 4.0 * h->max_seqs);
    h->n_ctx = (uint32_t)get(v, KEY_N_CTX, 8192);
    h->prefill_chunk = (uint32_t)get(v, KEY_CHUNK, 512);
    h->n_segments = (uint32_t)get(v, KEY_SEGMENTS, 32);
    if (v->given[KEY_KV_BLOCKS])
        h->n_blocks = (uint32_t)v->v[KEY_KV_BLOCKS];
    if (h->max_slots < h->max_seqs)
        return err_set(e, ERR_BAD_FILE, "max_slots is below max_seqs");
    if (h->n_blocks < 2 || h->n_blocks > 50000000u)
        return err_set(e, ERR_BAD_FILE, "there is room for %u blocks of K and V beside the weights",
                       h->n_blocks);
    return 0;
}

int sim_roofline(struct sim_hardware *h, const struct sim_values *v, struct err *e) {
    double layers = v->v[KEY_LAYERS], hidden = v->v[KEY_HIDDEN], dim = v->v[KEY_HEAD_DIM];
    double q = v->v[KEY_HEADS] * dim, kv = v->v[KEY_KV_HEADS] * dim;
    double matrices = layers * (2 * hidden * q + 2 * hidden * kv + 3 * hidden * v->v[KEY_FFN]);
    double head = v->v[KEY_VOCAB] * hidden, weight = get(v, KEY_WEIGHT_BYTES, 2);
    double byte_ns = 1 / v->v[KEY_BANDWIDTH], flop_ns = 1 / (v->v[KEY_TFLOPS] * 1e3);
    struct sim_model *m = &h->model;
    (void)snprintf(h->name, sizeof(h->name), "%.3gB weights, %.4g GB/s, %.4g TFLOP/s",
                   (matrices + head) * 1e-9, v->v[KEY_BANDWIDTH], v->v[KEY_TFLOPS]);
    h->weights_bytes = (matrices + 2 * head) * weight; /* embedding and head */
    h->kv_bytes = 2 * layers * kv * get(v, KEY_KV_BYTES, 2);
    m->kind = SIM_MODEL_ROOFLINE;
    m->launch_ns = v->v[KEY_LAUNCH] * 1e3;
    m->weights_ns = matrices * weight * byte_ns;
    m->head_ns = head * weight * byte_ns;
    m->context_ns = h->kv_bytes * byte_ns;
    m->token_ns = 2 * matrices * flop_ns;
    m->row_ns = 2 * head * flop_ns;
    m->pair_ns = 4 * q * layers * flop_ns;
    double block = h->kv_bytes * get(v, KEY_BLOCK_TOKENS, 16);
    double room = (v->v[KEY_MEMORY] * GIB * 0.9 - h->weights_bytes) / block;
    h->n_blocks = room > 2 ? room < 5e7 ? (uint32_t)room : 50000000u : 0;
    if (get(v, KEY_COPY, 0) > 0) {
        h->copy_ns = (uint64_t)(block / v->v[KEY_COPY]) + 1;
        h->n_host = (uint32_t)fmin(get(v, KEY_HOST, 0) * GIB / block, 5e7);
    }
    return limits(h, v, e);
}

static const char *const features[COST_FEATURES] = {"one",   "first", "spill", "rows",
                                                    "reads", "pairs", "cold",  "head"};

static int take_cost(struct sim_model *m, const json_t *cost, struct err *e) {
    for (int i = 0; i < COST_FEATURES; i++) {
        const json_t *j = json_is_array(cost) ? json_array_get(cost, (size_t)i)
                                              : json_object_get(cost, features[i]);
        double v = json_number_value(j);
        if (json_is_array(cost) && !json_is_number(j))
            return err_set(e, ERR_BAD_FILE, "cost has no 8 numbers");
        if (!isfinite(v) || v < 0 || v > 1e15)
            return err_set(e, ERR_BAD_FILE, "cost: %s is no time in ns", features[i]);
        m->coef[i] = v;
    }
    if (m->coef[COST_ONE] + m->coef[COST_FIRST] <= 0)
        return err_set(e, ERR_BAD_FILE, "cost: a step that costs nothing");
    return 0;
}

/* One case of the bench: what it ran, and how long a step took. false: nothing to learn from. */
static bool bench_step(const json_t *c, struct step_shape *s, uint64_t *ns) {
    const char *kind = json_string_value(json_object_get(c, "kind"));
    json_int_t seqs = json_integer_value(json_object_get(c, "seqs"));
    json_int_t tokens = json_integer_value(json_object_get(c, "tokens"));
    json_int_t context = json_integer_value(json_object_get(c, "context"));
    double rate = json_number_value(json_object_get(json_object_get(c, "tokens_s"), "median"));
    memset(s, 0, sizeof(*s));
    if (kind == NULL || json_is_true(json_object_get(c, "skipped")) || !(rate > 0) || context < 0 ||
        context > 1048576 || seqs < 0 || seqs > 4096 || tokens < 0 || tokens > 65536)
        return false;
    bool prefill = strcmp(kind, "prefill") == 0;
    uint32_t n = (uint32_t)(prefill ? tokens : seqs);
    if (n == 0)
        return false;
    if (prefill)
        step_shape_add(s, context > tokens ? (uint32_t)(context - tokens) : 0, n, 1);
    for (uint32_t i = 0; i < n && !prefill; i++)
        step_shape_add(s, (uint32_t)context, 1, 1);
    *ns = (uint64_t)(n * 1e9 / rate);
    return true;
}

/* The cases of the most threads, over and over, until the coefficients stand. */
static int fit_bench(struct sim_model *m, const json_t *cases, struct err *e) {
    json_int_t threads = 0;
    size_t i;
    json_t *c;
    json_array_foreach((json_t *)(uintptr_t)cases, i, c) {
        json_int_t t = json_integer_value(json_object_get(c, "threads"));
        threads = t > threads ? t : threads;
    }
    struct step_cost cost;
    double start[COST_FEATURES];
    uint32_t used = 0;
    step_cost_start_cpu(start, 98400000, 23040, 1);
    step_cost_init(&cost, start);
    for (int round = 0; round < 200; round++) {
        json_array_foreach((json_t *)(uintptr_t)cases, i, c) {
            struct step_shape s;
            uint64_t ns;
            if (json_integer_value(json_object_get(c, "threads")) != threads || !bench_step(c, &s, &ns))
                continue;
            step_cost_learn(&cost, &s, ns);
            used++;
        }
    }
    if (used < 2 * 200)
        return err_set(e, ERR_BAD_FILE, "fewer than two measured cases in it");
    memcpy(m->coef, cost.coef, sizeof(m->coef));
    return 0;
}

int sim_measured(struct sim_hardware *h, const struct sim_values *v, const json_t *j, struct err *e) {
    const json_t *cost = json_object_get(j, "cost"), *cases = json_object_get(j, "cases");
    h->model.kind = SIM_MODEL_LINEAR;
    (void)snprintf(h->name, sizeof(h->name), "a measured worker");
    h->n_blocks = BLOCKS_MEASURED;
    h->copy_ns = (uint64_t)(get(v, KEY_COPY_US, 0) * 1e3);
    int rc;
    if (cost != NULL && (json_is_array(cost) || json_is_object(cost)))
        rc = take_cost(&h->model, cost, e);
    else if (json_is_array(cases))
        rc = fit_bench(&h->model, cases, e);
    else
        rc = err_set(e, ERR_BAD_FILE, "neither \"cost\" nor \"cases\" in it");
    h->n_host = (uint32_t)get(v, KEY_HOST_BLOCKS, 0);
    if (rc == 0)
        rc = sim_live_read(&h->live, j, e);
    return rc == 0 ? limits(h, v, e) : -1;
}

void sim_hardware_core(const struct sim_hardware *h, const struct class_table *classes, bool prefix_cache,
                       struct worker_core_config *out) {
    memset(out, 0, sizeof(*out));
    out->max_slots = h->max_slots;
    out->max_seqs = out->max_spans = h->max_seqs;
    out->prefill_chunk = h->prefill_chunk;
    out->max_tokens = out->max_rows = h->max_seqs + h->prefill_chunk;
    out->n_ctx = h->n_ctx;
    out->pool = (struct kvpool_config){.n_blocks = h->n_blocks + 1,
                                       .block_tokens = h->block_tokens,
                                       .max_seq_blocks = (h->n_ctx + h->block_tokens - 1) / h->block_tokens,
                                       .n_host = h->copy_ns > 0 ? h->n_host : 0,
                                       .max_accounts = 1,
                                       .prefix_cache = prefix_cache};
    out->pool.max_copies = out->pool.n_host > 0 ? 16 : 0;
    out->classes = *classes;
    out->min_run = 16;
    out->park_max_ns = 2000000000u;
    out->lost_realtime_ns = 2000000000u;
    out->lost_batch_ns = 30000000000u;
    out->finish_repeat_ns = 1000000000u;
    out->interference_permille = 50;
    out->out_weight = 2;
    out->n_segments = h->n_segments;
    out->copy_ns = h->copy_ns;
    out->fixed_cost = true;
    sim_model_cost(&h->model, &out->cost);
}
