/* sim_model.c - see sim_model.h. */
#include "cli/sim_model.h"

#include <string.h>

void sim_shape_add(struct sim_shape *s, uint32_t pos, uint32_t n, uint32_t rows) {
    step_shape_add(&s->s, pos, n, rows);
    if (n > 0)
        s->context += (uint64_t)pos + n;
}

void sim_shape_next(struct sim_shape *s) {
    s->s.cold = false;
    s->s.reads += s->s.spans;
    s->s.pairs += s->s.spans;
    s->context += s->s.spans;
}

static double linear_ns(const struct sim_model *m, const struct step_shape *s) {
    uint32_t first = s->tokens < COST_KNEE ? s->tokens : COST_KNEE;
    double ns = m->coef[COST_ONE] + m->coef[COST_FIRST] * first;
    ns += m->coef[COST_SPILL] * (s->tokens - first) + m->coef[COST_ROWS] * s->rows;
    ns += m->coef[COST_READS] * ((double)s->reads * 1e-3);
    ns += m->coef[COST_PAIRS] * ((double)s->pairs * 1e-3);
    ns += s->cold ? m->coef[COST_COLD] : 0;
    return ns + (s->rows > 0 ? m->coef[COST_HEAD] : 0);
}

static double roofline_ns(const struct sim_model *m, const struct sim_shape *s) {
    double move = m->weights_ns + m->context_ns * (double)s->context;
    double compute = m->token_ns * s->s.tokens + m->pair_ns * (double)s->s.pairs;
    move += s->s.rows > 0 ? m->head_ns : 0;
    compute += m->row_ns * s->s.rows;
    return m->launch_ns + (move > compute ? move : compute);
}

uint64_t sim_model_ns(const struct sim_model *m, const struct sim_shape *s) {
    double ns = m->kind == SIM_MODEL_LINEAR ? linear_ns(m, &s->s) : roofline_ns(m, s);
    return ns < 1 ? 1 : ns > 1e18 ? (uint64_t)1e18 : (uint64_t)ns;
}

void sim_model_cost(const struct sim_model *m, struct step_cost *out) {
    double start[COST_FEATURES];
    memcpy(start, m->coef, sizeof(start));
    if (m->kind == SIM_MODEL_ROOFLINE) {
        start[COST_ONE] = m->launch_ns + m->weights_ns;
        start[COST_FIRST] = start[COST_SPILL] = m->token_ns;
        start[COST_ROWS] = m->row_ns;
        start[COST_READS] = m->context_ns * 1e3;
        start[COST_PAIRS] = m->pair_ns * 1e3;
        start[COST_COLD] = 0;
        start[COST_HEAD] = m->head_ns;
    }
    step_cost_init(out, start);
}
