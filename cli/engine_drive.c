/* engine_drive.c - see engine_drive.h. */
#include "cli/engine_drive.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#define EVENTS 16

int drive_open(struct drive *d, const struct engine_config *cfg, struct err *e) {
    memset(d, 0, sizeof(*d));
    if (engine_open(&d->eng, cfg, e) != 0)
        return -1;
    d->limits = engine_limits(d->eng);
    d->table = mem_array(d->limits->n_blocks, sizeof(*d->table));
    d->spans = mem_array(d->limits->max_spans, sizeof(*d->spans));
    d->rows = mem_array(d->limits->max_rows, sizeof(*d->rows));
    if (d->table == NULL || d->spans == NULL || d->rows == NULL) {
        drive_close(d);
        return err_set(e, ERR_NO_MEMORY, "no memory for a step");
    }
    for (uint32_t i = 0; i + 1 < d->limits->n_blocks; i++)
        d->table[i] = i + 1;
    d->step.spans = d->spans;
    d->step.rows = d->rows;
    return 0;
}

void drive_close(struct drive *d) {
    engine_close(&d->eng);
    mem_free(d->table);
    mem_free(d->spans);
    mem_free(d->rows);
    memset(d, 0, sizeof(*d));
}

uint32_t drive_block_count(const struct drive *d, uint32_t positions) {
    return (positions + d->limits->block_tokens - 1) / d->limits->block_tokens;
}

void drive_begin(struct drive *d) {
    d->step.id++;
    d->step.n_spans = d->step.n_rows = 0;
}

uint32_t drive_span(struct drive *d, uint32_t block, uint32_t pos, const int32_t *ids, uint32_t n) {
    assert(d->step.n_spans < d->limits->max_spans);
    uint32_t n_blocks = drive_block_count(d, pos + n);
    assert(block + n_blocks < d->limits->n_blocks);
    d->spans[d->step.n_spans] = (struct engine_span){.seq = block + 1,
                                                     .ids = ids,
                                                     .n = n,
                                                     .pos = pos,
                                                     .blocks = d->table + block,
                                                     .n_blocks = n_blocks};
    return d->step.n_spans++;
}

struct engine_row *drive_row(struct drive *d, uint32_t span, uint32_t index,
                             enum engine_row_kind kind) {
    assert(d->step.n_rows < d->limits->max_rows);
    struct engine_row *r = &d->rows[d->step.n_rows++];
    *r = (struct engine_row){.span = span, .index = index, .kind = kind};
    r->params.top_p = 1;
    r->params.repetition_penalty = 1;
    r->params.position = (uint64_t)d->spans[span].pos + index + 1;
    return r;
}

/* Waits for the end of the running step. */
static int await_end(struct drive *d, struct err *e) {
    struct engine_completion events[EVENTS];
    struct pollfd p = {.fd = engine_fd(d->eng), .events = POLLIN};
    for (;;) {
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return err_set(e, ERR_IO, "poll: %s", strerror(errno));
        int n = engine_poll(d->eng, events, EVENTS);
        for (int i = 0; i < n; i++) {
            if (events[i].kind == ENGINE_DEVICE_LOST)
                return err_set(e, ERR_INTERNAL, "the device was lost");
            if (events[i].kind != ENGINE_STEP_END || events[i].id != d->step.id)
                continue;
            if (events[i].status == ENGINE_STEP_OK)
                return 0;
            drive_release(d);
            return err_set(e, ERR_INTERNAL, "the engine's step failed");
        }
    }
}

int drive_run(struct drive *d, struct err *e) {
    if (engine_step_submit(d->eng, &d->step) != 0)
        return err_set(e, ERR_INTERNAL, "the engine refused a step of %u sequences",
                       d->step.n_spans);
    return await_end(d, e);
}

const struct sample_result *drive_result(const struct drive *d, uint32_t row) {
    return engine_step_result(d->eng, d->step.id, row);
}

const float *drive_data(const struct drive *d, uint32_t row) {
    return engine_step_row_data(d->eng, d->step.id, row);
}

void drive_release(struct drive *d) {
    engine_step_release(d->eng, d->step.id);
}
