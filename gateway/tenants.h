/* tenants.h - the tenants as the gateway runs them: limits, budgets, keys, and a table that can be
 * replaced while requests are live.
 *
 * A tenant lives from the file that first names it until no file names it and its last request ended. A
 * new file changes the limits of the same object: what was admitted stays admitted and counted. A revoked
 * key lets nothing new in; what it started runs on. Files are read by tenants_read, on any thread, and
 * put in force by tenants_apply on the loop, both or neither: a bad file changes nothing.
 *
 * Order for a request: tenant_hold -> tenant_reserve (exact counts are known) -> tenant_charge as tokens
 * are made -> tenant_settle at its end, whatever the end (twice is harmless) -> tenant_release. Every door
 * goes through the request, so HTTP, RPC and jobs share one account.
 *
 * Thread: the loop, but for tenants_read. Limits: TENANTS_FILE_MAX tenants in the file, and as many that
 * are on their way out.
 */
#ifndef SLUICE_GATEWAY_TENANTS_H
#define SLUICE_GATEWAY_TENANTS_H

#include "config/keys_file.h"
#include "gateway/gateway.h"
#include "gateway/key_index.h"
#include "scheduler/token_budget.h"

#define TENANTS_LIVE_MAX (2 * TENANTS_FILE_MAX)
#define TENANT_OPEN_NAME "default"   /* the open tenant's, without a file */

struct tenant {
    struct tenant_line line;       /* as in the file */
    uint32_t index;                /* < TENANTS_LIVE_MAX, its own while it lives: place in arrays by tenant */
    uint32_t refs;
    bool gone;                     /* in no file any more */
    struct token_budget budget;
    struct budget_file *noted;     /* the gateway's: each change of the budget is noted there; or NULL */
};

struct tenants;

/* What one reading of the files gave. */
struct tenants_load {
    char tenants_path[SETTINGS_TEXT_MAX], keys_path[SETTINGS_TEXT_MAX];
    struct classes_file classes;
    struct tenants_file tenants;
    struct keys_file keys;
    bool failed;
    struct err err;
};

/* Reads the settings' files; without a tenants file the one open tenant. -1 and `e`: nothing is left. */
int tenants_create(struct tenants **out, struct gateway *g, struct err *e);
void tenants_destroy(struct tenants **t); /* no request and no load is live */
/* A dispatcher is there now: it learns of all tenants. */
void tenants_meet_dispatch(struct tenants *t);
bool tenants_are_open(const struct tenants *t); /* no file: no keys are asked for */

void tenants_load_init(const struct tenants *t, struct tenants_load *l);
void tenants_read(struct tenants_load *l);     /* blocks on files; touches nothing but *l */
/* Takes what was read and empties *l. -1 and `e`: the old table stays. */
int tenants_apply(struct tenants *t, struct tenants_load *l, struct err *e);

/* Whose key it is. Open: everybody's; `key` is not looked at. */
bool tenants_find(const struct tenants *t, const char *key, size_t n, struct key_grant *out);
struct tenant *tenants_by_name(struct tenants *t, const char *name); /* NULL = none */
uint32_t tenants_keys(const struct tenants *t);
uint32_t tenants_count(const struct tenants *t);
/* Row `i` of tenants_count, those on their way out included. */
struct tenant *tenants_at(const struct tenants *t, uint32_t i);

struct tenant *tenant_hold(struct tenant *t);
void tenant_release(struct tenants *ts, struct tenant **t);

/* ---- what a request asks of its tenant (NULL tenant: no limits, success) */

struct api_rules;
/* What the text lanes must know; `classes` of the key. */
void tenant_rules(const struct gateway *g, const struct key_grant *grant, struct api_rules *out);

/* A request's place in its tenant's budget; zeroed before its first use, part of the request. */
struct tenant_share {
    struct budget_lease lease;
    struct budget_waiter waiter;
    /* It waited: `v` says BUDGET_OK (go on), or why not (refuse). May settle or free the request. */
    void (*ready)(struct tenant_share *s, const struct budget_verdict *v);
};

enum tenant_answer { TENANT_GO, TENANT_WAIT, TENANT_REFUSED };
/* WAIT: s->ready comes later, never from inside this call. REFUSED: *v says why. */
enum tenant_answer tenant_reserve(struct gateway *g, struct tenant *t, struct tenant_share *s,
                                  uint64_t prompt, uint64_t output, struct budget_verdict *v);
void tenant_charge(struct tenant *t, struct tenant_share *s, uint64_t prompt, uint64_t output);
void tenant_settle(struct gateway *g, struct tenant *t, struct tenant_share *s);
/* Settled before it began, for a reason of the server's (overload, full, too late): it was no request of this minute. */
void tenant_take_back(struct gateway *g, struct tenant *t, struct tenant_share *s);
/* Would so many more sequences pass its own queue-room? */
bool tenant_queue_full(const struct gateway *g, const struct tenant *t, uint32_t more);
/* The error of a verdict; *retry_ms 0 = trying again is of no use. */
void tenant_refusal(const struct tenant *t, const struct budget_verdict *v, uint32_t *retry_ms,
                    struct err *e);
void tenant_view(struct tenant *t, struct budget_view *v);
/* Draining: nothing waits for a budget any more. */
void tenants_drain(struct tenants *t);

#endif
