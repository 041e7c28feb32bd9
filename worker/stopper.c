/* stopper.c - see stopper.h. A replayed id takes the same road as a fresh one, with an index that
 * no rule can end, so that both leave the same state.
 */
#include "worker/stopper.h"

#include "model/tokenizer.h"

#include <assert.h>

static bool is_end_id(const struct vocab *v, int32_t id) {
    size_t n;
    const int32_t *eog = vocab_eog(v, &n);
    for (size_t i = 0; i < n; i++)
        if (eog[i] == id)
            return true;
    return false;
}

static bool is_stop_id(const struct stop_rules *r, int32_t id) {
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return true;
    return false;
}

/* Feeds the visible bytes of `id`; with `may_end` the first stop that completes ends the answer. */
static bool feed(const struct vocab *v, const struct stop_rules *r, struct stopper *s, int32_t id,
                 bool may_end) {
    size_t n;
    const uint8_t *p = detok_visible(v, id, r->skip_special, &n);
    if (r->stops == NULL) {
        s->visible += n;
        return false;
    }
    uint64_t base = s->stops.fed, start, end;
    size_t at = 0;
    while (at < n && stop_feed(r->stops, &s->stops, p + at, n - at, &start, &end)) {
        if (may_end) {
            s->visible = r->include_stop ? end : start;
            return true;
        }
        at = (size_t)(end - base);
    }
    s->visible = s->stops.fed;
    return false;
}

enum finish stopper_push(const struct vocab *v, const struct stop_rules *r, struct stopper *s,
                         uint32_t index, int32_t id) {
    assert(id >= 0 && id < vocab_size(v));
    /* An id at or behind min_total may be the end itself; a string ends the answer when the ids so
     * far suffice. */
    if (index >= r->min_total) {
        if (!r->ignore_eos && is_end_id(v, id))
            return FINISH_EOS;
        if (is_stop_id(r, id))
            return FINISH_STOP_ID;
    }
    if (feed(v, r, s, id, index + 1 >= r->min_total))
        return FINISH_STOP_STRING;
    return index + 1 >= r->max_total ? FINISH_LENGTH : FINISH_NONE;
}

void stopper_replay(const struct vocab *v, const struct stop_rules *r, struct stopper *s,
                    const int32_t *ids, uint32_t n_prompt, uint32_t n) {
    for (uint32_t i = n_prompt; i < n; i++)
        feed(v, r, s, ids[i], false);
}

uint32_t stopper_banned(const struct vocab *v, const struct stop_rules *r, int32_t *out,
                        uint32_t cap) {
    uint32_t count = 0;
    if (!r->ignore_eos) {
        size_t n;
        const int32_t *eog = vocab_eog(v, &n);
        for (size_t i = 0; i < n; i++, count++)
            if (count < cap)
                out[count] = eog[i];
    }
    for (uint32_t i = 0; i < r->n_stop_ids; i++, count++)
        if (count < cap)
            out[count] = r->stop_ids[i];
    return count;
}
