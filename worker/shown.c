/* shown.c - see shown.h. */
#include "worker/shown.h"

#include <stdio.h>
#include <string.h>

void shown_init(struct shown *s, const struct worker_core *core, const struct seq_store *store,
                uint32_t n_classes) {
    memset(s, 0, sizeof(*s));
    s->core = core;
    s->store = store;
    s->n_classes = n_classes;
}

void shown_up(struct shown *s, uint32_t gw) {
    memset(&s->gw[gw], 0, sizeof(s->gw[gw]));
}

void shown_look(struct shown *s) {
    for (uint32_t i = 1; i < s->store->n_accounts; i++) {
        struct shown_account *a = &s->accounts[i];
        if (a->owner == s->store->accounts[i].owner)
            continue;
        a->owner = s->store->accounts[i].owner;
        for (uint32_t k = 0; k < s->n_classes; k++)
            worker_core_tenant_account(s->core, i, (uint8_t)k, &a->base[k]);
        for (uint32_t g = 0; g < WORKER_GATEWAYS_MAX; g++)
            s->gw[g].told[i] = 0;
    }
}

static struct worker_tenant_account since(const struct shown *s, uint32_t account, uint32_t cls) {
    struct worker_tenant_account now;
    const struct worker_tenant_account *base = &s->accounts[account].base[cls];
    worker_core_tenant_account(s->core, account, (uint8_t)cls, &now);
    return (struct worker_tenant_account){now.prompt_first - base->prompt_first,
                                          now.output - base->output};
}

static uint64_t sum_of(const struct shown *s, uint32_t account) {
    uint64_t sum = 0;
    for (uint32_t k = 0; k < s->n_classes; k++) {
        struct worker_tenant_account n = since(s, account, k);
        sum += n.prompt_first + n.output;
    }
    return sum;
}

bool shown_news(const struct shown *s, uint32_t gw) {
    if (!s->gw[gw].swept)
        return true;
    for (uint32_t i = 1; i < s->store->n_accounts; i++)
        if (sum_of(s, i) != s->gw[gw].told[i])
            return true;
    return false;
}

uint32_t shown_rows(struct shown *s, uint32_t gw, struct msg_tenant *out, uint32_t cap, bool *all) {
    uint32_t n = 0;
    *all = false;
    for (uint32_t i = 1; i < s->store->n_accounts; i++) {
        uint64_t sum = sum_of(s, i);
        if (sum == s->gw[gw].told[i])
            continue;
        if (n + s->n_classes > cap)
            return n;
        for (uint32_t k = 0; k < s->n_classes; k++) {
            struct worker_tenant_account had = since(s, i, k);
            if (had.prompt_first + had.output == 0)
                continue;
            struct msg_tenant *t = &out[n++];
            memcpy(t->name, s->store->accounts[i].name, sizeof(t->name));
            t->cls = (uint8_t)k;
            t->prompt_first = had.prompt_first;
            t->output = had.output;
        }
        s->gw[gw].told[i] = sum;
    }
    s->gw[gw].swept = true;
    *all = true;
    return n;
}
