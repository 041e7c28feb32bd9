/* The copy path of the virtual device: one block at a time, two queues, fenced behind steps. */
#include "cli/sim_device_impl.h"

#include <string.h>

static uint64_t *block_words(const struct sim_device *d, uint32_t block)
{
    return d->content + (size_t)block * d->cfg.block_tokens;
}

static uint64_t *host_words(const struct sim_device *d, uint32_t slot)
{
    return d->host + (size_t)slot * d->cfg.block_tokens;
}

static bool fenced(const struct sim_device *d, const struct sim_copy *c)
{
    const struct sim_step *s = c->after_step != 0 ? sim_step_find(d, c->after_step) : NULL;
    return s != NULL && s->state != SIM_ENDED;
}

void sim_copy_kick(struct sim_device *d, uint64_t now_ns)
{
    for (int q = 0; q < 2 && !d->copying; q++) {
        struct sim_copy_queue *queue = &d->queues[q];
        if (queue->n == 0 || fenced(d, &queue->list[queue->head])) continue;
        d->copy = queue->list[queue->head];
        queue->head = (queue->head + 1) % SIM_COPIES_MAX;
        queue->n--;
        d->copying = true;
        d->copy.end_ns = now_ns + d->cfg.cost.copy_ns;
        if (d->cfg.model != NULL) continue;
        uint64_t *to =
            d->copy.to_host ? host_words(d, d->copy.host) : block_words(d, d->copy.block);
        memset(to, 0, d->cfg.block_tokens * sizeof *to);
    }
}

void sim_device_copy(struct sim_device *d, uint64_t now_ns, const struct worker_action *a)
{
    struct sim_copy_queue *q = &d->queues[a->copy.priority != 0];
    bool ok = a->copy.block > 0 && a->copy.block < d->cfg.n_blocks && a->copy.host < d->cfg.n_host;
    if (!ok || d->queues[0].n + d->queues[1].n + d->copying >= SIM_COPIES_MAX) {
        sim_device_blame(d, "a copy that the engine would refuse");
        return;
    }
    q->list[(q->head + q->n++) % SIM_COPIES_MAX] =
        (struct sim_copy){.id = a->copy.id,
                          .after_step = a->copy.after_step,
                          .block = a->copy.block,
                          .host = a->copy.host,
                          .to_host = a->copy.to_host};
    sim_copy_kick(d, now_ns);
}

uint64_t sim_copy_next_ns(const struct sim_device *d)
{
    return d->copying ? d->copy.end_ns : SIM_NEVER;
}

void sim_copy_event(struct sim_device *d, struct sim_event *out)
{
    const struct sim_copy *c = &d->copy;
    size_t bytes = d->cfg.block_tokens * sizeof *d->content;
    bool ok = true;
    if (d->cfg.model != NULL) {
        ok = d->cfg.corrupt_every == 0 || c->to_host || ++d->swap_ins % d->cfg.corrupt_every != 0;
    } else if (c->to_host) {
        memcpy(host_words(d, c->host), block_words(d, c->block), bytes);
    } else {
        memcpy(block_words(d, c->block), host_words(d, c->host), bytes);
        ok = d->cfg.corrupt_every == 0 || ++d->swap_ins % d->cfg.corrupt_every != 0;
        if (!ok) memset(block_words(d, c->block), 0x55, bytes);
    }
    *out = (struct sim_event){.kind = SIM_COPY_END,
                              .at_ns = c->end_ns,
                              .id = c->id,
                              .ok = ok,
                              .device_ns = d->cfg.cost.copy_ns};
    d->stats.copies++;
    d->stats.copy_ns += d->cfg.cost.copy_ns;
    d->copying = false;
    sim_copy_kick(d, out->at_ns);
}
