/* stop_match.h - stop strings as automata over visible bytes, one byte at a time.
 *
 * Two users, one truth: the worker decides with stop_feed where an answer ends; the gateway asks
 * stop_held how many trailing bytes may still begin a stop and must not be sent yet. The first stop
 * that completes wins; of several that complete at the same byte, the longest (earliest start). So the result
 * depends on the text alone, not on how tokens cut it. Prompt text never counts: feed output bytes only.
 * Cost: O(stops) a byte (Knuth-Morris-Pratt failure links, SIAM J. Comput. 6(2), 1977). Thread: the set is read-only.
 */
#ifndef SLUICE_MODEL_STOP_MATCH_H
#define SLUICE_MODEL_STOP_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STOP_MAX 16
#define STOP_BYTES_MAX 1024

struct stop_set;
struct stop_text { const char *p; size_t n; };   /* 1 .. STOP_BYTES_MAX bytes */
struct stop_state { uint16_t at[STOP_MAX]; uint64_t fed; }; /* zero-initialised */

struct stop_set *stop_set_create(const struct stop_text *stops, uint32_t n); /* NULL = no memory; n 0 is legal */
void stop_set_destroy(struct stop_set **s);

/* Feed output bytes. true = a stop completed: *start and *end are positions (in bytes fed since the
 * state was zero) of its first byte and behind its last; the bytes behind *end were not looked at. Who ignores
 * the stop (min_tokens not reached) may feed on with those; everyone else does not feed the state again. */
bool stop_feed(const struct stop_set *s, struct stop_state *st, const uint8_t *p, size_t n, uint64_t *start, uint64_t *end);
uint32_t stop_held(const struct stop_set *s, const struct stop_state *st);

#endif
