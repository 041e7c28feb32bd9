#include "tests/unit/worker/engine/ops_testing.h"

#include "base/hash.h"
#include "base/mem.h"
#include "worker/engine/cpu/f16.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t rnd_u64(struct rnd *r) {
    return rand_at(r->seed, r->n++);
}

uint32_t rnd_below(struct rnd *r, uint32_t n) {
    return (uint32_t)((rnd_u64(r) >> 32) * n >> 32);
}

float rnd_unit(struct rnd *r) {
    return rand_unit(r->seed, r->n++);
}

float rnd_normal(struct rnd *r) {
    float s = 0;
    for (int i = 0; i < 6; i++)
        s += rnd_unit(r);
    return (s - 3) * 1.41421356f;
}

void rnd_fill(struct rnd *r, float *x, uint32_t n, float size, bool odd) {
    static const float oddities[] = {0, -0.0f, 1e-41f, -1e-41f, 1e-31f, -3e-38f, 1e-20f, 0};
    for (uint32_t i = 0; i < n; i++)
        x[i] = odd && rnd_below(r, 8) == 0 ? oddities[rnd_below(r, 8)] : rnd_normal(r) * size;
}

static uint16_t random_scale(struct rnd *r) {
    return f32_to_f16((rnd_unit(r) * 0.02f + 0.001f) * (rnd_below(r, 2) ? 1 : -1));
}

/* One F16 or BF16 value of about N(0, 0.1); some are zero, minus zero or denormal. */
static void random_half(uint8_t *p, struct rnd *r, enum gguf_type type) {
    float f;
    rnd_fill(r, &f, 1, 0.1f, true);
    uint16_t h = type == GGUF_F16 ? f32_to_f16(f) : (uint16_t)(f32_bits(f) >> 16);
    memcpy(p, &h, sizeof h);
}

void tensor_make(struct gguf_tensor *t, struct rnd *r, enum gguf_type type, uint32_t rows,
                 uint32_t cols) {
    memset(t, 0, sizeof *t);
    t->name.p = "test";
    t->name.n = 4;
    t->n_dims = 2;
    t->dims[0] = cols;
    t->dims[1] = rows;
    t->dims[2] = t->dims[3] = 1;
    t->type = type;
    size_t block = type == GGUF_Q4_0 ? 18 : type == GGUF_Q4_1 ? 20 : 34;
    t->bytes = gguf_type_bytes(type, (uint64_t)rows * cols);
    uint8_t *p = mem_alloc(t->bytes);
    if (p == NULL)
        abort();
    t->data = p;
    if (type == GGUF_F32) {
        rnd_fill(r, (float *)(void *)p, rows * cols, 0.1f, true);
        return;
    }
    if (type == GGUF_F16 || type == GGUF_BF16) {
        for (uint32_t i = 0; i < rows * cols; i++)
            random_half(p + 2 * (size_t)i, r, type);
        return;
    }
    for (uint64_t i = 0; i < t->bytes; i++)
        p[i] = (uint8_t)rnd_u64(r);
    for (uint64_t i = 0; i < t->bytes; i += block) {
        uint16_t d = random_scale(r), m = random_scale(r);
        memcpy(p + i, &d, 2);
        if (type == GGUF_Q4_1)
            memcpy(p + i + 2, &m, 2);
    }
}

static double half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return (double)f16_to_f32(h);
}

double tensor_at(const struct gguf_tensor *t, uint32_t row, uint32_t col) {
    const uint8_t *p = t->data;
    uint64_t at = (uint64_t)row * t->dims[0] + col;
    uint32_t c = col % 32;
    if (t->type == GGUF_F32) {
        float f;
        memcpy(&f, p + 4 * at, 4);
        return (double)f;
    }
    if (t->type == GGUF_F16)
        return half_at(p + 2 * at);
    if (t->type == GGUF_BF16) {
        uint16_t h;
        memcpy(&h, p + 2 * at, 2);
        return (double)bf16_to_f32(h);
    }
    if (t->type == GGUF_Q4_0) {
        p += at / 32 * 18;
        return half_at(p) * ((c < 16 ? p[2 + c] & 15 : p[2 + c - 16] >> 4) - 8);
    }
    if (t->type == GGUF_Q8_0) {
        p += at / 32 * 34;
        return half_at(p) * (int8_t)p[2 + c];
    }
    p += at / 32 * 20;
    return half_at(p) * (c < 16 ? p[4 + c] & 15 : p[4 + c - 16] >> 4) + half_at(p + 2);
}

void matrix_make(struct packed_matrix *m, const struct gguf_tensor *t) {
    struct err e;
    if (packed_matrix_plan(m, t, &e) != 0 || (m->data = mem_alloc(m->bytes)) == NULL)
        abort();
    packed_matrix_fill(m, t, 0, m->n_groups);
}

static const struct cpu_ops *twin;

bool ops_twin_use(uint32_t i) {
    static const enum engine_kernel kernels[] = {ENGINE_KERNEL_AVX2, ENGINE_KERNEL_AVX512};
    if (i >= sizeof kernels / sizeof *kernels)
        return false;
    twin = cpu_ops_choose(kernels[i], NULL);
    if (twin == NULL)
        printf("note: this CPU has no %s\n", i == 0 ? "AVX2, scalar is compared with itself"
                                                    : "AVX-512 VNNI");
    if (twin == NULL && i == 0)
        twin = &cpu_ops_scalar;
    return twin != NULL;
}

const struct cpu_ops *ops_twin(void) {
    if (twin == NULL)
        ops_twin_use(0);
    return twin;
}
