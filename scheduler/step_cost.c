/* step_cost.c - see step_cost.h.
 *
 * In the code below a scaled coefficient is coef / scale, about 1, and a scaled feature is what that
 * coefficient adds to the prediction, as a part of it: their sum is about 1 for every step, so one
 * matrix serves steps of 1 ms and of 10 s, and the error is relative.
 */
#include "scheduler/step_cost.h"

#include <assert.h>
#include <string.h>

#define N COST_FEATURES
/* Variances are in units of a step's own noise (its relative error squared when all is known). */
#define P_START 10.0      /* doubt at the start */
#define P_MAX 100.0       /* more, and one step would decide alone */
#define WALK_ALL 0.1      /* a step's drift of all coefficients together, by one factor */
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

static void forget_all(struct step_cost *c)
{
    memset(c->p, 0, sizeof c->p);
    for (int i = 0; i < N; i++)
        c->p[i][i] = P_START;
}

void step_cost_init(struct step_cost *c, const double start_ns[COST_FEATURES])
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < N; i++) {
        assert(start_ns[i] >= 0 && start_ns[i] < NS_MAX);
        c->coef[i] = c->start[i] = start_ns[i];
    }
    c->error = 1;
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
    return (uint64_t)predict(c->coef, x);
}

/* Moves the scaled coefficients into their bounds: one that is outside is set to its bound, and the
 * others take what it explained, as far as p says they can stand for each other. */
static void into_bounds(struct step_cost *c, double theta[N], const double scale[N])
{
    double low[N];
    for (int i = 0; i < N; i++)
        low[i] = c->start[i] > 0 ? 1 / COST_RANGE : 0;
    for (int i = 0; i < N; i++) {
        double bound = theta[i] < low[i] ? low[i] : theta[i] > COST_RANGE ? COST_RANGE : theta[i];
        double move = (bound - theta[i]) / c->p[i][i];
        if (move == 0)
            continue;
        for (int j = 0; j < N; j++)
            theta[j] += move * c->p[j][i];
    }
    for (int i = 0; i < N; i++) {
        double t = theta[i] < low[i] ? low[i] : theta[i] > COST_RANGE ? COST_RANGE : theta[i];
        c->coef[i] = t * scale[i];
    }
}

/* Half the doubt about one coefficient, in a way that keeps p positive. */
static void halve(struct step_cost *c, int i)
{
    for (int j = 0; j < N; j++)
        c->p[i][j] = c->p[j][i] = c->p[i][j] * (j == i ? 0.25 : 0.5);
}

/* The doubt that grows from one step to the next. level: how this step compares with its cold start;
 * on a machine of half the speed a coefficient wanders twice as far. Both halves of p are written alike here and
 * below, so it stays symmetric to the bit. */
static void drift(struct step_cost *c, const double theta[N], double level)
{
    double most = P_MAX * level * level;
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++) {
            double own = i == j ? walk[i] * level * level : 0;
            c->p[i][j] = c->p[j][i] = c->p[i][j] + own + WALK_ALL * theta[i] * theta[j];
        }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 64 && c->p[i][i] > most; k++)
            halve(c, i);
}

/* What a step in direction g / p = x told, with w = x p x, is doubted no more. */
static void settle(struct step_cost *c, const double g[N], double w)
{
    bool sound = true;
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            c->p[i][j] = c->p[j][i] = c->p[i][j] - g[i] * g[j] / (1 + w);
    for (int i = 0; i < N; i++)
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

/* How the prediction compares with the cold start's, within the bounds. */
static double level_of(const struct step_cost *c, const double x[N], double told)
{
    double start = predict(c->start, x);
    double level = told / (start > FLOOR_NS ? start : FLOOR_NS);
    return level < 1 / COST_RANGE ? 1 / COST_RANGE : level > COST_RANGE ? COST_RANGE : level;
}

void step_cost_learn(struct step_cost *c, const struct step_shape *s, uint64_t device_ns)
{
    double x[N], scale[N], theta[N], g[N] = {0}, w = 0;
    features(s, x);
    scales(c, scale);
    double told = predict(c->coef, x), unit = told > FLOOR_NS ? told : FLOOR_NS;
    double e = ((double)device_ns - told) / unit, level = level_of(c, x, unit);
    for (int i = 0; i < N; i++) {
        theta[i] = c->coef[i] / scale[i];
        x[i] = x[i] * scale[i] / unit;
    }
    drift(c, theta, level);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            g[i] += c->p[i][j] * x[j];
    for (int i = 0; i < N; i++)
        w += x[i] * g[i];
    double taken = clip(c, e), size = e < 0 ? -e : e < COST_CLIP ? e : COST_CLIP;
    c->n++;
    c->error = ERROR_KEEP * c->error + (1 - ERROR_KEEP) * size;
    if (!(w < 1e12))
        return; /* a shape beyond all measure teaches nothing */
    for (int i = 0; i < N; i++)
        theta[i] += g[i] / (1 + w) * taken;
    settle(c, g, w);
    into_bounds(c, theta, scale);
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
