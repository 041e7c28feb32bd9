#include "scheduler/class_table.h"

#include <string.h>

void class_table_default(struct class_table *t)
{
    static const struct class_row rows[] = {
        /* name, rank, order, preemptible, ttft, tpot, floor, longest wait, age */
        {"realtime", 0, 0, false, 1000, 100, 0, 0, 0},
        {"batch", 1, 1, true, 0, 0, 0, 0, 0},
    };
    memset(t, 0, sizeof *t);
    memcpy(t->rows, rows, sizeof rows);
    t->n = sizeof rows / sizeof rows[0];
}

int class_table_find(const struct class_table *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (strcmp(t->rows[i].name, name) == 0) return (int)i;
    }
    return -1;
}
