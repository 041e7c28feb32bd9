/* msg_gen.h - random messages within their bounds, from a seed; and comparison field by field.
 *
 * The same seed gives the same message everywhere: failures print it. msg_deinit frees what is made.
 */
#ifndef SLUICE_TESTS_MSG_GEN_H
#define SLUICE_TESTS_MSG_GEN_H

#include "proto/message.h"

extern const enum msg_kind msg_gen_kinds[];
extern const unsigned msg_gen_n_kinds;

void msg_gen(struct msg *m, enum msg_kind kind, uint64_t seed);
/* NULL, or the name of the first field that differs. */
const char *msg_gen_differ(const struct msg *a, const struct msg *b);

#endif
