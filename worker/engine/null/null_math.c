#include "worker/engine/null/null_math.h"

#include "base/hash.h"

#include <stddef.h>

#define TRIES_MAX 256 /* then the first allowed id is taken: a mask may leave very few */

uint64_t null_start(int32_t id, uint64_t position)
{
    return rand_at((uint64_t)(uint32_t)id + 1, position);
}

uint64_t null_word(uint32_t group, uint64_t x, uint64_t before, uint64_t fold)
{
    return rand_at(x, group) ^ rand_at(before + 0x9e3779b97f4a7c15u, x) ^ rand_at(fold, before);
}

uint64_t null_fold(uint64_t fold, uint64_t word)
{
    return rand_at(fold ^ word, 1);
}

static bool is_eog(const struct null_vocab *v, int32_t id)
{
    for (uint32_t i = 0; i < v->n_eog; i++)
        if (v->eog[i] == id)
            return true;
    return false;
}

static bool allowed(const struct sample_params *p, int32_t id)
{
    if (p->mask != NULL && !(p->mask[id / 64] >> (id % 64) & 1))
        return false;
    for (uint32_t i = 0; i < p->n_banned; i++)
        if (p->banned[i] == id)
            return false;
    return true;
}

/* The state as the parameters see it: what they ignore must not change the draw. */
static uint64_t draw_state(uint64_t h, const struct sample_params *p)
{
    bool penalties =
        p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    if (p->temperature > 0)
        h ^= rand_at(p->seed, p->position);
    if (penalties && p->history != NULL)
        h ^= hash64(p->history, p->n_history * sizeof *p->history, p->n_prompt + 1);
    if (p->n_bias > 0)
        h ^= hash64(p->bias, p->n_bias * sizeof *p->bias, 1);
    return h;
}

int32_t null_draw(uint64_t h, const struct sample_params *p, const struct null_vocab *v)
{
    uint64_t u = draw_state(h, p);
    uint64_t r = rand_at(u, 0);
    if (v->n_eog > 0 && r % NULL_EOG_ONE_IN == 0) {
        int32_t id = v->eog[r / NULL_EOG_ONE_IN % v->n_eog];
        if (allowed(p, id))
            return id;
    }
    for (uint32_t i = 1; i <= TRIES_MAX; i++) {
        int32_t id = (int32_t)(rand_at(u, i) % v->n_vocab);
        if (!is_eog(v, id) && allowed(p, id))
            return id;
    }
    for (uint32_t id = 0; id < v->n_vocab; id++)
        if (allowed(p, (int32_t)id))
            return (int32_t)id;
    return 0;
}

static int32_t greedy(uint64_t h, const struct null_vocab *v)
{
    const struct sample_params p = {.repetition_penalty = 1};
    return null_draw(h, &p, v);
}

float null_logprob(uint64_t h, int32_t id, const struct null_vocab *v)
{
    float u = rand_unit(h, (uint64_t)(uint32_t)id + 1);
    return id == greedy(h, v) ? -0.05f - u / 16 : -1.0f - 8 * u;
}

/* `top` is kept by falling logprob, ties by id; ids are distinct. */
static void insert(struct sample_result *out, int32_t id, float logprob)
{
    uint32_t at = out->n_top;
    for (uint32_t i = 0; i < out->n_top; i++)
        if (out->top[i].id == id)
            return;
    while (at > 0 && (out->top[at - 1].logprob < logprob ||
                      (out->top[at - 1].logprob == logprob && out->top[at - 1].id > id)))
        at--;
    for (uint32_t i = out->n_top; i > at; i--)
        out->top[i] = out->top[i - 1];
    out->top[at] = (struct sample_top){.id = id, .logprob = logprob};
    out->n_top++;
}

void null_tops(uint64_t h, uint32_t n_top, const struct null_vocab *v, struct sample_result *out)
{
    out->n_top = 0;
    if (n_top == 0)
        return;
    int32_t first = greedy(h, v);
    insert(out, first, null_logprob(h, first, v));
    for (uint32_t i = 1; out->n_top < n_top && i <= TRIES_MAX; i++) {
        int32_t id = (int32_t)(rand_at(h, ~(uint64_t)i) % v->n_vocab);
        insert(out, id, null_logprob(h, id, v));
    }
}

float null_value(uint64_t h, uint32_t i)
{
    return rand_unit(h, ((uint64_t)1 << 32) + i);
}
