/* step_cost.c - see step_cost.h.
 *
 * In the code below a scaled coefficient is coef / scale, about 1, and a scaled feature is what that
 * coefficient adds to the prediction, as a part of it: their sum is about 1 for every step, so one
 * matrix serves steps of 1 ms and of 10 s, and the error is relative. Index LEVEL is the level.
 */
#include "scheduler/step_cost.h"

#include <assert.h>
#include <string.h>

#define N COST_FEATURES
#define LEVEL N
#define ALL (N + 1)
/* Variances are in units of a step's own noise (its relative error squared when all is known). */
#define P_START 10.0      /* doubt at the start: of each, and of all together */
#define DOUBT_KEEP 0.998  /* a step's: doubt ends at the drift of 500 steps; more, and one step would decide alone */
#define LEVEL_WALK 0.3    /* a step's drift of the level */
#define LEVEL_KEEP 0.95   /* of what it differs from 1 by: a machine slower for longer has other coefficients */
#define LEVEL_RANGE 4.0
#define ERROR_KEEP 0.98   /* decay of the usual error */
#define ERROR_CLIP 3.0    /* x the usual error, and ERROR_SLACK: what is beyond says nothing about the step */
#define ERROR_SLACK 0.05
#define FLOOR_NS 1000.0   /* relative to less, the clock's own noise would be learned */
#define NS_MAX 1e18       /* 31 years; what does not fit is as good as for ever */

/* A step's drift of each coefficient. Chosen by replaying the steps of bench_planner, recorded on a quiet and on a
 * busy machine: errors are flat within a factor of 3 around them. */
static const double walk[N] = {[COST_ONE] = 1,      [COST_FIRST] = 0.01, [COST_SPILL] = 0.01,
                               [COST_ROWS] = 0.01,  [COST_READS] = 0.01, [COST_PAIRS] = 0.01,
                               [COST_COLD] = 0.01,  [COST_HEAD] = 0.3};

/* Where the cold start says 0: the size a coefficient would have beside a position's time. */
static const double typical[N] = {8, 1, 1, 0.3, 1, 1, 1, 2};

static void scales(const struct step_cost *c, double s[N])
{
    double base = FLOOR_NS;
    for (int i = 0; i < N; i++)
        if (c->start[i] / typical[i] > base)
            base = c->start[i] / typical[i];
    for (int i = 0; i < N; i++)
        s[i] = c->start[i] > 0 ? c->start[i] : base * typical[i];
}

static void features(const struct step_shape *s, double x[N])
{
    uint32_t first = s->tokens < COST_KNEE ? s->tokens : COST_KNEE;
    x[COST_ONE] = 1;
    x[COST_FIRST] = first;
    x[COST_SPILL] = s->tokens - first;
    x[COST_ROWS] = s->rows;
    x[COST_READS] = (double)s->reads * 1e-3;
    x[COST_PAIRS] = (double)s->pairs * 1e-3;
    x[COST_COLD] = s->cold ? 1 : 0;
    x[COST_HEAD] = s->rows > 0 ? 1 : 0;
}

static double predict(const double coef[N], const double x[N])
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += coef[i] * x[i];
    return sum < NS_MAX ? sum : NS_MAX;
}

static double told_ns(const struct step_cost *c, const double x[N])
{
    double t = c->level * predict(c->coef, x);
    return t < NS_MAX ? t : NS_MAX;
}

static void forget_all(struct step_cost *c)
{
    memset(c->p, 0, sizeof c->p);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            c->p[i][j] = i == j ? 2 * P_START : P_START;
}

void step_cost_init(struct step_cost *c, const double start_ns[COST_FEATURES])
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < N; i++) {
        assert(start_ns[i] >= 0 && start_ns[i] < NS_MAX);
        c->coef[i] = c->start[i] = start_ns[i];
    }
    c->error = c->level = 1;
    forget_all(c);
}

/* Measured with 98.4 MB of weights, 23,040 bytes of K and V a position, one thread
 * (docs/ENGINE.md, docs/BENCHMARKS.md). Two threads are worth 1.8. */
void step_cost_start_cpu(double start_ns[COST_FEATURES], uint64_t weight_bytes,
                         uint64_t kv_bytes_token, uint32_t threads)
{
    static const double measured[N] = {2.5e6, 0.6e6, 0.6e6, 0.28e6, 1.2e6, 0.47e6, 0.6e6, 1.5e6};
    assert(threads >= 1);
    double weights = (double)weight_bytes / 98.4e6, kv = (double)kv_bytes_token / 23040;
    double speed = 1 + 0.8 * (threads - 1);
    for (int i = 0; i < N; i++)
        start_ns[i] = measured[i] * weights / speed;
    start_ns[COST_READS] = measured[COST_READS] * kv / speed;
    start_ns[COST_PAIRS] = measured[COST_PAIRS] * kv / speed;
}

void step_cost_start_null(double start_ns[COST_FEATURES], uint64_t step_ns, uint64_t token_ns)
{
    memset(start_ns, 0, N * sizeof *start_ns);
    start_ns[COST_ONE] = (double)step_ns;
    start_ns[COST_FIRST] = start_ns[COST_SPILL] = (double)token_ns;
}

void step_shape_add(struct step_shape *s, uint32_t pos, uint32_t n, uint32_t rows)
{
    if (n == 0)
        return;
    assert(rows <= n && n <= UINT32_MAX - pos && n <= UINT32_MAX - s->tokens);
    uint64_t tiles = ((uint64_t)n + COST_TILE - 1) / COST_TILE;
    s->tokens += n;
    s->spans++;
    s->rows += rows;
    s->reads += ((uint64_t)pos + n) * tiles;
    s->pairs += (uint64_t)n * pos + (uint64_t)n * ((uint64_t)n + 1) / 2;
}

uint64_t step_cost_ns(const struct step_cost *c, const struct step_shape *s)
{
    double x[N];
    features(s, x);
    return (uint64_t)told_ns(c, x);
}

static double within(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

/* Moves the scaled coefficients into their bounds: one that is outside is set to its bound, and the
 * others take what it explained, as far as p says they can stand for each other. */
static void into_bounds(struct step_cost *c, double theta[ALL], const double scale[N])
{
    double low[N];
    for (int i = 0; i < N; i++)
        low[i] = c->start[i] > 0 ? 1 / COST_RANGE : 0;
    for (int i = 0; i < N; i++) {
        double move = (within(theta[i], low[i], COST_RANGE) - theta[i]) / c->p[i][i];
        if (move == 0)
            continue;
        for (int j = 0; j < ALL; j++)
            theta[j] += move * c->p[j][i];
    }
    for (int i = 0; i < N; i++)
        c->coef[i] = within(theta[i], low[i], COST_RANGE) * scale[i];
    double level = within(theta[LEVEL], 1 / LEVEL_RANGE, LEVEL_RANGE);
    c->level = 1 + LEVEL_KEEP * (level - 1);
}

/* The doubt that grows from one step to the next. pace: how this step compares with its cold start; on a
 * machine of half the speed a coefficient wanders twice as far. p as a whole is scaled, for a bound on
 * single entries would undo what is known of sums. Both halves of p are written alike here and below, so it
 * stays symmetric to the bit. */
static void drift(struct step_cost *c, double pace)
{
    for (int i = 0; i < ALL; i++)
        for (int j = i; j < ALL; j++) {
            double keep = j < LEVEL ? DOUBT_KEEP : i < LEVEL ? LEVEL_KEEP : LEVEL_KEEP * LEVEL_KEEP;
            c->p[i][j] = c->p[j][i] = keep * c->p[i][j];
        }
    for (int i = 0; i < N; i++)
        c->p[i][i] += walk[i] * pace * pace;
    c->p[LEVEL][LEVEL] += LEVEL_WALK * c->level * c->level;
}

/* What a step in direction g / p = x told, with w = x p x, is doubted no more. */
static void settle(struct step_cost *c, const double g[ALL], double w)
{
    bool sound = true;
    for (int i = 0; i < ALL; i++)
        for (int j = i; j < ALL; j++)
            c->p[i][j] = c->p[j][i] = c->p[i][j] - g[i] * g[j] / (1 + w);
    for (int i = 0; i < ALL; i++)
        sound = sound && c->p[i][i] > 0; /* false for what is no number, too */
    if (!sound)
        forget_all(c);
}

static double clip(const struct step_cost *c, double e)
{
    double most = ERROR_CLIP * c->error + ERROR_SLACK;
    most = most < COST_CLIP ? most : COST_CLIP;
    return e > most ? most : e < -most ? -most : e;
}

/* Into the model goes part of error e: g is p x, w is x p x for the step's scaled features x. */
static void correct(struct step_cost *c, const double x[ALL], const double scale[N], double e)
{
    double theta[ALL], g[ALL] = {0}, w = 0;
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < ALL; j++)
            g[i] += c->p[i][j] * x[j];
    for (int i = 0; i < ALL; i++)
        w += x[i] * g[i];
    if (!(w < 1e12))
        return; /* a shape beyond all measure teaches nothing */
    for (int i = 0; i < ALL; i++) {
        double now = i == LEVEL ? c->level : c->coef[i] / scale[i];
        theta[i] = now + g[i] / (1 + w) * e;
    }
    settle(c, g, w);
    into_bounds(c, theta, scale);
}

void step_cost_learn(struct step_cost *c, const struct step_shape *s, uint64_t device_ns)
{
    double x[ALL], scale[N];
    features(s, x);
    scales(c, scale);
    double told = told_ns(c, x), start = predict(c->start, x), unit = told / c->level;
    unit = unit > FLOOR_NS ? unit : FLOOR_NS; /* without the level */
    start = start > FLOOR_NS ? start : FLOOR_NS;
    double e = ((double)device_ns - told) / (unit * c->level);
    for (int i = 0; i < N; i++)
        x[i] = x[i] * scale[i] / unit;
    x[LEVEL] = 1 / c->level;
    double taken = clip(c, e), size = e < 0 ? -e : e < COST_CLIP ? e : COST_CLIP;
    c->n++;
    c->error = ERROR_KEEP * c->error + (1 - ERROR_KEEP) * size;
    drift(c, within(unit / start, 1 / COST_RANGE, COST_RANGE));
    correct(c, x, scale, taken);
}

static bool fits(const struct step_cost *c, const struct step_shape *s, uint32_t pos, uint32_t n,
                 uint64_t limit_ns)
{
    struct step_shape with = *s;
    step_shape_add(&with, pos, n, 1);
    return step_cost_ns(c, &with) <= limit_ns;
}

uint32_t step_cost_chunk(const struct step_cost *c, const struct step_shape *s, uint32_t pos,
                         uint32_t n, uint64_t limit_ns)
{
    uint32_t low = 0, high = n; /* low fits (or is 0), more than high is not asked for */
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (fits(c, s, pos, mid, limit_ns))
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}
