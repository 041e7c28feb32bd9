/* state_key.h - the fingerprint of a world: what decides its future, and nothing else.
 *
 * Left out: statistics, names of blocks and steps (the virtual engine checks contents as it goes),
 * start numbers. Made equal: submission ids by their rank among those alive (only equality and age
 * matter), times by their distance from now.
 */
#ifndef SLUICE_TESTS_STATE_KEY_H
#define SLUICE_TESTS_STATE_KEY_H

#include "base/hash.h"
#include "tests/unit/scheduler/world.h"

struct hash128 state_key(const struct world *x, uint32_t extra);

#endif
