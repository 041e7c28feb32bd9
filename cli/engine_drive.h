/* engine_drive.h - runs an engine step by step and waits for each: what `bench engine` and `eval`
 * need
 * of worker/engine/engine.h, without a scheduler.
 *
 * Order: drive_open; for each step drive_begin, drive_span and drive_row as often as wanted,
 * drive_run,
 * results by drive_result or drive_data, drive_release; drive_close. A sequence is the blocks from
 * a
 * first one on (drive_block_count says how many for its positions); the caller keeps them apart.
 * Ownership: the model stays the caller's and open until drive_close. Thread: one.
 * Failure: -1 and a sentence; a step that failed leaves nothing to release.
 */
#ifndef SLUICE_CLI_ENGINE_DRIVE_H
#define SLUICE_CLI_ENGINE_DRIVE_H

#include "worker/engine/engine.h"

struct drive {
    struct engine *eng;
    const struct engine_limits *limits;
    uint32_t *table; /* block ids 1, 2, 3 ...: a sequence's table is a place in it */
    struct engine_span *spans;
    struct engine_row *rows;
    struct engine_step step;
};

/* cfg->n_blocks counts the trash block. */
int drive_open(struct drive *d, const struct engine_config *cfg, struct err *e);
void drive_close(struct drive *d);
uint32_t drive_block_count(const struct drive *d, uint32_t positions);

void drive_begin(struct drive *d);
/* n ids at positions pos .. pos + n - 1 of the sequence that begins at `block` (0 = the first). */
uint32_t drive_span(struct drive *d, uint32_t block, uint32_t pos, const int32_t *ids, uint32_t n);
/* A row of that span; `index` counts its positions. SAMPLE rows are greedy. */
struct engine_row *drive_row(struct drive *d, uint32_t span, uint32_t index,
                             enum engine_row_kind kind);
int drive_run(struct drive *d, struct err *e);
const struct sample_result *drive_result(const struct drive *d, uint32_t row);
const float *drive_data(const struct drive *d, uint32_t row);
void drive_release(struct drive *d);

#endif
