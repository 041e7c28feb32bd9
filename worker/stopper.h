/* stopper.h - where an answer ends: the one place that decides a finish and the count of visible
 * bytes.
 *
 * Pure function over (vocabulary, rules, state, id): no clock, no allocation. The order of reasons
 * is fixed: an end-of-generation id (unless ignored), a stop id, a stop string, the length. No end
 * but the length comes before `min_total`: stop ids and end ids are banned by then
 * (stopper_banned), a stop string that completes earlier is ignored, one that began earlier and
 * completes later counts. Visible bytes: control tokens are invisible with skip_special; the text
 * of the id that ends the answer (EOS, stop id) is never visible, that of a stop string only with
 * include_stop. Cost: O(bytes of the token x stop strings). Thread: any, one state one owner.
 */
#ifndef SLUICE_WORKER_STOPPER_H
#define SLUICE_WORKER_STOPPER_H

#include "base/submission.h"
#include "model/stop_match.h"
#include "model/vocab.h"

struct stop_rules {
    const int32_t *stop_ids;
    uint32_t n_stop_ids;
    const struct stop_set *stops; /* NULL = none */
    bool ignore_eos, include_stop, skip_special;
    uint32_t min_total, max_total; /* indexes, prompt included (base/submission.h) */
};

struct stopper { /* zero-initialised at the first output id; copy it to take an id back */
    struct stop_state stops;
    uint64_t visible; /* bytes of output text so far; after a finish: of the answer */
};

/* The id at absolute index `index` was made: how does it end the answer (FINISH_NONE: not). */
enum finish stopper_push(const struct vocab *v, const struct stop_rules *r, struct stopper *s,
                         uint32_t index, int32_t id);
/* Resume: the output ids at indexes [n_prompt, n) go through the state and end nothing. */
void stopper_replay(const struct vocab *v, const struct stop_rules *r, struct stopper *s,
                    const int32_t *ids, uint32_t n_prompt, uint32_t n);
/* Ids that must not be drawn while the index is below min_total: end ids and stop ids. Count, at
 * most `cap` written. */
uint32_t stopper_banned(const struct vocab *v, const struct stop_rules *r, int32_t *out,
                        uint32_t cap);

#endif
