/* vrows.h - the rows of the virtual benchmark: each runs its arms and fills a report of figures and
 * bars.
 *
 * A report fails where a figure misses its bar; it is void where the run does not prove what it
 * should (too few preemptions, too few tries). Counted in virtual time: the same figures on every
 * machine. `scale` shortens a row (1 = as the bar asks, the test suite uses less).
 */
#ifndef SLUICE_TESTS_BENCH_VROWS_H
#define SLUICE_TESTS_BENCH_VROWS_H

#include <stdbool.h>
#include <stdint.h>

#define VREPORT_LINES 96

enum vbar { VBAR_NONE, VBAR_MOST, VBAR_LEAST };

struct vline {
    char name[56];
    double value, bar;
    enum vbar kind;
};

struct vreport {
    const char *row;
    struct vline lines[VREPORT_LINES];
    uint32_t n, failed;
    const char *void_because; /* NULL = it counts */
    const char *error;        /* a broken rule, or no memory */
};

struct voptions {
    uint64_t seed;
    double scale;
    bool host;         /* with a host tier */
    const char *trace; /* prefix row; NULL = only the equal prompts */
};

void vreport_add(struct vreport *r, enum vbar kind, double bar, double value, const char *name, ...)
    __attribute__((format(printf, 5, 6)));
bool vreport_missed(const struct vline *l);

void vrow_collapse(struct vreport *r,
                   const struct voptions *o); /* rows "no collapse" and "preemption tax" */
void vrow_isolation(struct vreport *r, const struct voptions *o);
void vrow_yield(struct vreport *r, const struct voptions *o);
void vrow_prefix(struct vreport *r, const struct voptions *o);
void vrow_ahead(struct vreport *r, const struct voptions *o);
void vrow_replay(struct vreport *r, const struct voptions *o);

#endif
