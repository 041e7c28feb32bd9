#include "gateway/gateway.h"

#include "config/classes_file.h"

#include <assert.h>
#include <string.h>
#include <time.h>

uint64_t gateway_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t gateway_wall_s(void)
{
    return (int64_t)time(NULL);
}

int gateway_classes(struct gateway *g, struct err *e)
{
    struct classes_file f;
    if (g->settings->classes[0] == '\0') return 0;
    if (classes_file_load(&f, g->settings->classes, e) != 0) return -1;
    CLASS_LINES_COPY(&g->limits.classes, &f);
    return 0;
}

int gateway_charge(struct gateway *g, uint64_t more)
{
    if (g->queue_bytes + more > (uint64_t)g->settings->max_queue_bytes) return -1;
    g->queue_bytes += more;
    return 0;
}

void gateway_uncharge(struct gateway *g, uint64_t bytes)
{
    assert(bytes <= g->queue_bytes);
    g->queue_bytes -= bytes;
}
