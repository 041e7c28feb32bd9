#include "gateway/explain.h"

#include "base/mem.h"
#include "gateway/json_out.h"

#include <stdio.h>
#include <string.h>

struct explain {
    struct explain_entry *ring;
    uint32_t cap, n, next;
};

int explain_create(struct explain **out, uint32_t entries, struct err *e)
{
    *out = NULL;
    if (entries == 0) return 0;
    struct explain *x = mem_zalloc(sizeof *x);
    if (x != NULL) x->ring = mem_array(entries, sizeof *x->ring);
    if (x == NULL || x->ring == NULL) {
        explain_destroy(&x);
        return err_set(e, ERR_NO_MEMORY, "no memory to keep %u ledgers", entries);
    }
    x->cap = entries;
    *out = x;
    return 0;
}

void explain_destroy(struct explain **x)
{
    if (*x != NULL) mem_free((*x)->ring);
    mem_free(*x);
    *x = NULL;
}

void explain_put(struct explain *x, const struct explain_entry *e)
{
    x->ring[x->next] = *e;
    x->next = (x->next + 1) % x->cap;
    if (x->n < x->cap) x->n++;
}

const struct explain_entry *explain_find(const struct explain *x, const char *tenant, const char *id)
{
    for (uint32_t i = 0; x != NULL && i < x->n; i++) {
        const struct explain_entry *e = &x->ring[(x->next + x->cap - 1 - i) % x->cap];
        if (strcmp(e->tenant, tenant) != 0) continue;
        if (strcmp(e->id, id) == 0 || strcmp(e->label, id) == 0) return e;
    }
    return NULL;
}

static enum ledger_cause top_of(const struct explain_entry *e)
{
    uint32_t top = 0;
    for (uint32_t i = 1; i < LEDGER_CAUSES; i++) top = e->ns[i] > e->ns[top] ? i : top;
    return (enum ledger_cause)top;
}

static void put_part(struct buf *out, const struct explain_entry *e, enum ledger_cause c, bool first)
{
    double ms = (double)e->ns[c] / 1e6;
    buf_addf(out, "%s{\"cause\":\"%s\",\"ms\":%.3f,\"share\":%.4f,\"meaning\":", first ? "" : ",", ledger_name(c),
             ms, e->wall_ns > 0 ? (double)e->ns[c] / (double)e->wall_ns : 0);
    json_out_str(out, ledger_meaning(c), strlen(ledger_meaning(c)));
    buf_adds(out, "}");
}

static void put_text(struct buf *out, const char *name, const char *text)
{
    buf_addf(out, ",\"%s\":", name);
    json_out_str(out, text, strlen(text));
}

void explain_json(struct buf *out, const struct explain_entry *e, const struct class_table *classes)
{
    bool first = true;
    buf_adds(out, "{\"object\":\"request.explanation\"");
    put_text(out, "id", e->id);
    put_text(out, "label", e->label);
    put_text(out, "class", classes->rows[e->cls].name);
    put_text(out, "worker", e->worker);
    put_text(out, "finish", e->code != ERR_OK ? err_code_text(e->code) : finish_text(e->finish));
    buf_addf(out, ",\"created\":%lld,\"wall_ms\":%.3f,\"ttft_ms\":", (long long)e->at_s, (double)e->wall_ns / 1e6);
    if (e->ttft_ns > 0) buf_addf(out, "%.3f", (double)e->ttft_ns / 1e6);
    else buf_adds(out, "null");
    buf_addf(out, ",\"choices\":%u,\"prompt_tokens\":%u,\"cached_tokens\":%u,\"output_tokens\":%u,\"preemptions\":%u",
             e->choices, e->n_prompt, e->cached, e->n_out, e->preemptions);
    put_text(out, "top", ledger_name(top_of(e)));
    put_text(out, "advice", ledger_advice(top_of(e)));
    buf_adds(out, ",\"parts\":[");
    for (uint32_t i = 0; i < LEDGER_CAUSES; i++) {
        if (e->ns[i] == 0) continue;
        put_part(out, e, (enum ledger_cause)i, first);
        first = false;
    }
    buf_adds(out, "]}");
}

void explain_server_timing(char *out, size_t cap, const uint64_t ns[LEDGER_CAUSES])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < LEDGER_CAUSES; i++) {
        if (ns[i] < 50000) continue;
        int k = snprintf(out + n, cap - n, "%s%s;dur=%.1f", n > 0 ? ", " : "", ledger_name((enum ledger_cause)i),
                         (double)ns[i] / 1e6);
        if (k < 0 || (size_t)k >= cap - n) {
            out[n] = '\0';
            return;
        }
        n += (size_t)k;
    }
}
