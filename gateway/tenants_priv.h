/* tenants_priv.h - the inside of the tenants: tenants.c (table, files) and tenant_budget.c (limits). */
#ifndef SLUICE_GATEWAY_TENANTS_PRIV_H
#define SLUICE_GATEWAY_TENANTS_PRIV_H

#include "gateway/tenants.h"

struct tenants {
    struct gateway *g;
    bool open;                     /* no file: list[0] is everybody */
    struct classes_file classes;
    struct tenant *list[TENANTS_LIVE_MAX]; /* by index, with holes */
    uint32_t high;                 /* no tenant at or above */
    bool untold[TENANTS_LIVE_MAX]; /* the dispatcher does not know yet what is at this index */
    struct key_index *keys;
    uint32_t n_keys;
    uint16_t hint[4096];           /* by hash of a name: 1 + its index when it was last asked for */
    uv_timer_t timer;              /* waiters for budgets */
    bool has_timer;
    int open_handles;
};

/* tenants.c: weights and room to the dispatcher, outside its own work. */
void tenants_tell(struct tenants *ts);

/* tenant_budget.c */
void tenant_set_limits(struct tenant *t, bool fresh);
/* A new object with its index: what it used and reserved before this process, and paid for today. */
void tenant_restore(struct gateway *g, struct tenant *t);
int tenants_timer_open(struct tenants *ts, struct err *e);
void tenants_timer_close(struct tenants *ts);
void tenants_look_soon(struct tenants *ts); /* limits were changed, or something ended */

#endif
