#include "tests/tiny/tiny_reference.h"

#include "tests/tiny/tiny_half.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct layer {
    float *attn_norm, *q, *k, *v, *o, *ffn_norm, *gate, *up, *down;
};

struct tiny_reference {
    struct hparams hp;
    float *embd, *head, *out_norm;
    struct layer *layers;
    float *keys, *values; /* [layer][position][kv head][dim] */
    uint32_t positions, at;
    float *x, *h, *qv, *att, *up, *gate;
    double *scores, *logprobs;
};

static float *load(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t)
        return NULL;
    size_t n = (size_t)(t->dims[0] * t->dims[1]);
    float *x = mem_array(n, sizeof *x);
    if (x && tiny_dequantise(t->type, t->data, n, x) != 0) {
        mem_free(x);
        return NULL;
    }
    return x;
}

static float **layer_part(struct layer *l, int i)
{
    float **parts[] = {&l->attn_norm, &l->q,    &l->k,  &l->v,   &l->o,
                       &l->ffn_norm,  &l->gate, &l->up, &l->down};
    return parts[i];
}

static int load_layers(struct tiny_reference *r, const struct gguf *g)
{
    static const char *const names[] = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};
    char name[64];
    r->layers = mem_array(r->hp.n_layers, sizeof *r->layers);
    for (uint32_t l = 0; r->layers && l < r->hp.n_layers; l++)
        for (int i = 0; i < 9; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, names[i]);
            if (!(*layer_part(&r->layers[l], i) = load(g, name)))
                return -1;
        }
    return r->layers ? 0 : -1;
}

static int alloc_work(struct tiny_reference *r)
{
    const struct hparams *hp = &r->hp;
    size_t q = (size_t)hp->n_heads * hp->head_dim, kv = (size_t)hp->n_kv_heads * hp->head_dim;
    size_t all = hp->n_layers * (size_t)r->positions * kv;
    r->keys = mem_array(all, sizeof(float));
    r->values = mem_array(all, sizeof(float));
    r->x = mem_array(hp->n_embd, sizeof(float));
    r->h = mem_array(hp->n_embd, sizeof(float));
    r->qv = mem_array(q, sizeof(float));
    r->att = mem_array(q, sizeof(float));
    r->up = mem_array(hp->n_ff, sizeof(float));
    r->gate = mem_array(hp->n_ff, sizeof(float));
    r->scores = mem_array(r->positions, sizeof(double));
    r->logprobs = mem_array(hp->n_vocab, sizeof(double));
    return r->keys && r->values && r->x && r->h && r->qv && r->att && r->up && r->gate &&
                   r->scores && r->logprobs
               ? 0
               : -1;
}

int tiny_reference_create(struct tiny_reference **out, const struct gguf *g, uint32_t positions,
                          struct err *e)
{
    *out = NULL;
    struct tiny_reference *r = mem_zalloc(sizeof *r);
    if (!r)
        return err_set(e, ERR_NO_MEMORY, "no memory for the reference");
    if (hparams_read(&r->hp, g, e) != 0)
        goto fail;
    r->positions = positions;
    r->embd = load(g, "token_embd.weight");
    r->out_norm = load(g, "output_norm.weight");
    r->head = r->hp.tied_head ? r->embd : load(g, "output.weight");
    if (!r->embd || !r->out_norm || !r->head || load_layers(r, g) != 0 || alloc_work(r) != 0) {
        err_set(e, ERR_NO_MEMORY, "no memory for the reference");
        goto fail;
    }
    *out = r;
    return 0;
fail:
    tiny_reference_destroy(&r);
    return -1;
}

void tiny_reference_destroy(struct tiny_reference **rp)
{
    struct tiny_reference *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    for (uint32_t l = 0; r->layers && l < r->hp.n_layers; l++)
        for (int i = 0; i < 9; i++)
            mem_free(*layer_part(&r->layers[l], i));
    if (!r->hp.tied_head)
        mem_free(r->head);
    void *parts[] = {r->layers, r->embd, r->out_norm, r->keys, r->values, r->x,        r->h,
                     r->qv,     r->att,  r->up,       r->gate, r->scores, r->logprobs, r};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        mem_free(parts[i]);
}

void tiny_reference_reset(struct tiny_reference *r)
{
    r->at = 0;
}

const struct hparams *tiny_reference_hparams(const struct tiny_reference *r)
{
    return &r->hp;
}

static void rms(const struct hparams *hp, const float *x, const float *gain, float *out)
{
    double sum = 0;
    for (uint32_t i = 0; i < hp->n_embd; i++)
        sum += (double)x[i] * x[i];
    double scale = 1 / sqrt(sum / hp->n_embd + hp->rms_eps);
    for (uint32_t i = 0; i < hp->n_embd; i++)
        out[i] = (float)(x[i] * scale * gain[i]);
}

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* out[j] = w[j] . x, or added to what is there. */
static void matvec(const float *w, const float *x, uint32_t n_in, uint32_t n_out, bool add,
                   float *out)
{
    for (uint32_t j = 0; j < n_out; j++)
        out[j] = (float)(dot(w + (size_t)j * n_in, x, n_in) + (add ? out[j] : 0));
}

/* Pairs (2i, 2i + 1) of each head, turned by position * base^(-2i / n_rot). */
static void rope(const struct hparams *hp, float *x, uint32_t heads, uint32_t position)
{
    for (uint32_t i = 0; i < hp->n_rot; i += 2) {
        double angle = position * pow(hp->rope_base, -(double)i / hp->n_rot);
        double c = cos(angle), s = sin(angle);
        for (uint32_t h = 0; h < heads; h++) {
            float *p = x + (size_t)h * hp->head_dim + i;
            double a = p[0], b = p[1];
            p[0] = (float)(a * c - b * s);
            p[1] = (float)(a * s + b * c);
        }
    }
}

static void attend(struct tiny_reference *r, const float *keys, const float *values, uint32_t head)
{
    const struct hparams *hp = &r->hp;
    uint32_t kv = hp->n_kv_heads * hp->head_dim, d = hp->head_dim;
    uint32_t group = head / (hp->n_heads / hp->n_kv_heads) * d;
    const float *q = r->qv + (size_t)head * d;
    double top = -INFINITY, sum = 0;
    for (uint32_t p = 0; p <= r->at; p++) {
        r->scores[p] = dot(q, keys + (size_t)p * kv + group, d) / sqrt(d);
        top = fmax(top, r->scores[p]);
    }
    for (uint32_t p = 0; p <= r->at; p++)
        sum += r->scores[p] = exp(r->scores[p] - top);
    for (uint32_t i = 0; i < d; i++) {
        double v = 0;
        for (uint32_t p = 0; p <= r->at; p++)
            v += r->scores[p] * values[(size_t)p * kv + group + i];
        r->att[(size_t)head * d + i] = (float)(v / sum);
    }
}

static void run_layer(struct tiny_reference *r, uint32_t l)
{
    const struct hparams *hp = &r->hp;
    const struct layer *w = &r->layers[l];
    uint32_t q = hp->n_heads * hp->head_dim, kv = hp->n_kv_heads * hp->head_dim;
    float *keys = r->keys + (size_t)l * r->positions * kv, *k = keys + (size_t)r->at * kv;
    float *values = r->values + (size_t)l * r->positions * kv, *v = values + (size_t)r->at * kv;
    rms(hp, r->x, w->attn_norm, r->h);
    matvec(w->q, r->h, hp->n_embd, q, false, r->qv);
    matvec(w->k, r->h, hp->n_embd, kv, false, k);
    matvec(w->v, r->h, hp->n_embd, kv, false, v);
    rope(hp, r->qv, hp->n_heads, r->at);
    rope(hp, k, hp->n_kv_heads, r->at);
    for (uint32_t head = 0; head < hp->n_heads; head++)
        attend(r, keys, values, head);
    matvec(w->o, r->att, q, hp->n_embd, true, r->x);
    rms(hp, r->x, w->ffn_norm, r->h);
    matvec(w->gate, r->h, hp->n_embd, hp->n_ff, false, r->gate);
    matvec(w->up, r->h, hp->n_embd, hp->n_ff, false, r->up);
    for (uint32_t i = 0; i < hp->n_ff; i++)
        r->up[i] = (float)(r->gate[i] / (1 + exp(-(double)r->gate[i])) * r->up[i]);
    matvec(w->down, r->up, hp->n_ff, hp->n_embd, true, r->x);
}

const double *tiny_reference_step(struct tiny_reference *r, int32_t id)
{
    const struct hparams *hp = &r->hp;
    double top = -INFINITY, sum = 0;
    if (r->at >= r->positions || id < 0 || (uint32_t)id >= hp->n_vocab)
        return NULL;
    memcpy(r->x, r->embd + (size_t)id * hp->n_embd, hp->n_embd * sizeof *r->x);
    for (uint32_t l = 0; l < hp->n_layers; l++)
        run_layer(r, l);
    r->at++;
    rms(hp, r->x, r->out_norm, r->h);
    for (uint32_t i = 0; i < hp->n_vocab; i++) {
        r->logprobs[i] = dot(r->head + (size_t)i * hp->n_embd, r->h, hp->n_embd);
        top = fmax(top, r->logprobs[i]);
    }
    for (uint32_t i = 0; i < hp->n_vocab; i++)
        sum += exp(r->logprobs[i] - top);
    for (uint32_t i = 0; i < hp->n_vocab; i++)
        r->logprobs[i] -= top + log(sum);
    return r->logprobs;
}

int32_t tiny_reference_argmax(const struct tiny_reference *r)
{
    int32_t best = 0;
    for (uint32_t i = 1; i < r->hp.n_vocab; i++)
        if (r->logprobs[i] > r->logprobs[best])
            best = (int32_t)i;
    return best;
}
