/* vtrace.h - a request trace with prefix blocks (CSV: arrival_ms, input_tokens, output_tokens,
 * class, tenant, session, block_tokens, prefix_ids; `#` comments), and what an infinite cache would
 * compute of it.
 *
 * Ids: each trace block's tokens are a function of its id, so two prompts share exactly the leading
 * blocks on which their lists agree (cut to whole KV blocks of 16 by the cache).
 */
#ifndef SLUICE_TESTS_BENCH_VTRACE_H
#define SLUICE_TESTS_BENCH_VTRACE_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

struct vtrace_request {
    uint64_t at_ns;
    uint32_t n_prompt, n_out;
    bool realtime;
    struct hash128 root; /* of its tenant */
    int32_t *ids;
};

struct vtrace {
    struct vtrace_request *r;
    uint32_t n;
    uint64_t positions;      /* of all prompts */
    uint64_t infinite_cache; /* of them computed if every full block ever seen were kept */
};

int vtrace_read(struct vtrace *t, const char *path,
                uint64_t until_ms); /* -1: not there, or not such a file */
void vtrace_free(struct vtrace *t);

#endif
