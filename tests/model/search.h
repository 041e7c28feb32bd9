/* search.h - depth-first search over every order of deliveries, steps and ticks with at most n
 * faults.
 *
 * Order: search_run once per variant. A state that was seen with the same number of faults left is
 * not entered again. From every new state a schedule without further faults is followed until a
 * state known to come to rest: there the request has ended, all slots and blocks are free. Thread:
 * one.
 */
#ifndef SLUICE_TESTS_SEARCH_H
#define SLUICE_TESTS_SEARCH_H

#include "tests/unit/scheduler/world.h"

struct search_variant {
    const char *name;
    uint8_t cls;
    bool durable;
    bool two_numerics; /* the second worker has another numerics id */
    bool up; /* both workers are up when the request arrives; else they come up at any time */
    bool second_client; /* after a cancel another request comes into the same slot */
    uint32_t faults;
    enum world_mutation mutation;
    uint64_t states_max; /* a limit is a failure unless a mutation is searched for */
};

struct search_result {
    uint64_t states, transitions, rests; /* rests: different states of rest reached */
    uint32_t depth;                      /* longest path */
    const char *violation;               /* NULL: none; its path was printed if `print` */
};

struct search_result search_run(const struct search_variant *v, bool print);

#endif
