/* bench_case.c - see bench_case.h. */
#include "cli/bench_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int bench_list_parse(struct bench_list *l, const char *flag, const char *text, uint32_t min,
                     uint32_t max, struct err *e) {
    const char *p = text;
    l->n = 0;
    for (;;) {
        char *end;
        unsigned long v = strtoul(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || v < min || v > max)
            return err_set(e, ERR_BAD_VALUE,
                           "--%s takes numbers from %u to %u with commas between, not '%.40s'",
                           flag, min, max, text);
        if (l->n == BENCH_LIST_MAX)
            return err_set(e, ERR_BAD_VALUE, "--%s takes at most %d numbers", flag, BENCH_LIST_MAX);
        if (l->n > 0 && l->v[l->n - 1] >= v)
            return err_set(e, ERR_BAD_VALUE, "--%s: the numbers must ascend, not '%.40s'", flag,
                           text);
        l->v[l->n++] = (uint32_t)v;
        if (*end == '\0')
            return 0;
        if (*end != ',')
            return err_set(e, ERR_BAD_VALUE, "--%s: '%.40s' is no list like 1,4,16", flag, text);
        p = end + 1;
    }
}

uint32_t bench_list_last(const struct bench_list *l) {
    return l->n > 0 ? l->v[l->n - 1] : 0;
}

void bench_samples_add(struct bench_samples *s, double v) {
    if (s->n < BENCH_SAMPLES_MAX)
        s->v[s->n++] = v;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_samples_median(const struct bench_samples *s) {
    struct bench_samples t = *s;
    if (t.n == 0)
        return NAN;
    qsort(t.v, (size_t)t.n, sizeof(t.v[0]), compare);
    return t.n % 2 ? t.v[t.n / 2] : (t.v[t.n / 2 - 1] + t.v[t.n / 2]) / 2;
}

double bench_samples_min(const struct bench_samples *s) {
    double m = s->n > 0 ? s->v[0] : NAN;
    for (int i = 1; i < s->n; i++)
        m = s->v[i] < m ? s->v[i] : m;
    return m;
}

double bench_samples_max(const struct bench_samples *s) {
    double m = s->n > 0 ? s->v[0] : NAN;
    for (int i = 1; i < s->n; i++)
        m = s->v[i] > m ? s->v[i] : m;
    return m;
}

void bench_work_of(struct bench_work *w, const struct model *m, uint64_t block_bytes,
                   uint32_t block_tokens) {
    const struct hparams *hp = &m->hp;
    double q = (double)hp->n_heads * hp->head_dim, kv = (double)hp->n_kv_heads * hp->head_dim;
    memset(w, 0, sizeof(*w));
    w->macs_token = hp->n_layers * (hp->n_embd * (2 * q + 2 * kv) + 3.0 * hp->n_embd * hp->n_ff);
    w->macs_logits = (double)hp->n_embd * hp->n_vocab;
    w->kv_bytes = (double)block_bytes / block_tokens;
    for (uint64_t i = 0; i < gguf_tensor_count(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        bool lookup = !hp->tied_head && strncmp(t->name.p, "token_embd.", 11) == 0;
        w->weight_bytes += lookup ? 0 : (double)t->bytes;
    }
}

double bench_bound(const struct bench_case *c, const struct bench_work *w,
                   const struct engine_rates *r) {
    double rows = c->kind == BENCH_DECODE ? c->tokens : 1;
    double read_s = w->weight_bytes / (r->weights_gb_s * 1e9);
    double mac_s = (c->tokens * w->macs_token + rows * w->macs_logits) / (r->int8_gmac_s * 1e9);
    /* A prompt reads K and V once for many positions: nothing beside its products. */
    double kv = c->kind == BENCH_DECODE ? c->tokens * (double)c->context * w->kv_bytes : 0;
    double kv_s = kv / ((kv < w->weight_bytes ? r->weights_gb_s : r->read_gb_s) * 1e9);
    return c->tokens / ((read_s > mac_s ? read_s : mac_s) + kv_s);
}

void bench_case_name(const struct bench_case *c, char *out, size_t cap) {
    snprintf(out, cap, "%s %u at %u", c->kind == BENCH_PREFILL ? "prefill" : "decode", c->tokens,
             c->context);
}
