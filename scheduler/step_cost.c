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
#define KEEP 0.98         /* of what was known along a step's direction; 50 steps like it replace it */
#define P_START 10.0      /* doubt at the start: a coefficient may well be off by its own size */
#define P_MAX 100.0       /* more, and one step would decide alone */
#define ERROR_KEEP 0.98   /* decay of the usual error */
#define ERROR_CLIP 4.0    /* x the usual error, and ERROR_SLACK: what is beyond says nothing about the step */
#define ERROR_SLACK 0.05
#define FLOOR_NS 1000.0   /* relative to less, the clock's own noise would be learned */
#define NS_MAX 1e18       /* 31 years; what does not fit is as good as for ever */

/* Where the cold start says 0: the size a coefficient would have beside a position's time. */
static const double typical[N] = {8, 1, 1, 0.1, 0.3, 1, 1, 1};

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
    x[COST_SPANS] = s->spans;
    x[COST_ROWS] = s->rows;
    x[COST_READS] = (double)s->reads * 1e-3;
    x[COST_PAIRS] = (double)s->pairs * 1e-3;
    x[COST_COLD] = s->cold ? 1 : 0;
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
    static const double measured[N] = {3.3e6, 1.1e6, 0.6e6, 0.02e6, 0.25e6, 1.0e6, 0.55e6, 0.5e6};
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

/* p after a step in direction g / p = x, with w = x p x: what is new is added, and as much of the old
 * along x forgotten. Both halves are written alike, so p stays symmetric to the bit. */
static void update_p(struct step_cost *c, const double g[N], double w)
{
    double beta = KEEP - (1 - KEEP) / w, f = beta / (KEEP * (1 + w));
    bool sound = true;
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            c->p[i][j] = c->p[j][i] = c->p[i][j] - f * g[i] * g[j];
    for (int i = 0; i < N; i++) {
        sound = sound && c->p[i][i] > 0; /* false for what is no number, too */
        if (c->p[i][i] > P_MAX)
            halve(c, i);
    }
    if (!sound)
        forget_all(c);
}

static double clip(const struct step_cost *c, double e)
{
    double most = ERROR_CLIP * c->error + ERROR_SLACK;
    most = most < COST_CLIP ? most : COST_CLIP;
    return e > most ? most : e < -most ? -most : e;
}

void step_cost_learn(struct step_cost *c, const struct step_shape *s, uint64_t device_ns)
{
    double x[N], scale[N], theta[N], g[N], w = 0;
    features(s, x);
    scales(c, scale);
    double told = predict(c->coef, x), unit = told > FLOOR_NS ? told : FLOOR_NS;
    double e = ((double)device_ns - told) / unit;
    for (int i = 0; i < N; i++) {
        theta[i] = c->coef[i] / scale[i];
        x[i] = x[i] * scale[i] / unit;
    }
    for (int i = 0; i < N; i++) {
        g[i] = 0;
        for (int j = 0; j < N; j++)
            g[i] += c->p[i][j] * x[j];
    }
    for (int i = 0; i < N; i++)
        w += x[i] * g[i];
    c->n++;
    double taken = clip(c, e), size = e < 0 ? -e : e < COST_CLIP ? e : COST_CLIP;
    c->error = ERROR_KEEP * c->error + (1 - ERROR_KEEP) * size;
    if (!(w > 1e-12 && w < 1e12))
        return; /* a shape beyond all measure teaches nothing */
    for (int i = 0; i < N; i++)
        theta[i] += g[i] / (1 + w) * taken;
    update_p(c, g, w);
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
