#include "tests/bench/virtual/vrows.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

bool vreport_missed(const struct vline *l)
{
    /* written so that a NaN misses */
    if (l->kind == VBAR_MOST) return !(l->value <= l->bar);
    if (l->kind == VBAR_LEAST) return !(l->value >= l->bar);
    return false;
}

void vreport_add(struct vreport *r, enum vbar kind, double bar, double value, const char *name, ...)
{
    assert(r->n < VREPORT_LINES);
    struct vline *l = &r->lines[r->n++];
    *l = (struct vline){.value = value, .bar = bar, .kind = kind};
    va_list args;
    va_start(args, name);
    vsnprintf(l->name, sizeof l->name, name, args);
    va_end(args);
    r->failed += vreport_missed(l);
}
