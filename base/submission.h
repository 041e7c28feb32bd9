/* submission.h - words that gateway, link and worker share about one submitted sequence.
 *
 * Index: everything on the link counts absolute positions in the sequence, prompt included: id number i
 * of the sequence has index i; the first output id of a prompt of P ids has index P. A resumed or
 * retried sequence keeps its indexes, whatever was already produced when it was submitted again.
 */
#ifndef SLUICE_BASE_SUBMISSION_H
#define SLUICE_BASE_SUBMISSION_H

#include <stdbool.h>
#include <stdint.h>

/* A submission's name inside one gateway name: fresh for every SUBMIT, a retry too. */
struct sub_id { uint64_t incarnation, counter; };

static inline bool sub_id_equal(struct sub_id a, struct sub_id b)
{
    return a.incarnation == b.incarnation && a.counter == b.counter;
}

/* X(NAME, wire text, OpenAI finish_reason or NULL). Decided once, where the token is made. */
#define FINISH_LIST(X)                                                                             \
    X(NONE, "none", NULL)               /* goes on */                                              \
    X(EOS, "eos", "stop")               /* an end-of-generation id */                              \
    X(STOP_ID, "stop_id", "stop")       /* one of the request's stop_token_ids */                  \
    X(STOP_STRING, "stop_string", "stop")                                                          \
    X(LENGTH, "length", "length")       /* max_tokens, or the context's end */                     \
    X(CANCELLED, "cancelled", NULL)     /* answer to CANCEL */                                     \
    X(HANDED_BACK, "handed_back", NULL) /* draining, no room: submit it elsewhere or later */      \
    X(TOO_LARGE, "too_large", NULL)     /* can never fit this worker's pool or context */          \
    X(REFUSED, "refused", NULL)         /* invalid parameters or ids: the gateway's fault or a skew of versions */ \
    X(FAILED, "failed", NULL)           /* its step failed */                                      \
    X(UNKNOWN, "unknown", NULL)         /* GAP or CANCEL named a submission this worker does not hold */

enum finish {
#define FINISH_ENUM(name, text, openai) FINISH_##name,
    FINISH_LIST(FINISH_ENUM)
#undef FINISH_ENUM
    FINISH_COUNT
};

const char *finish_text(enum finish f);       /* wire text */
const char *finish_openai(enum finish f);     /* "stop", "length" or NULL */
int finish_parse(const char *text);           /* enum finish, -1 unknown */

/* Classes of service by number; the table itself is scheduler/class_table.h. */
#define CLASSES_MAX 8
#define CLASS_REALTIME 0
#define CLASS_BATCH 1

#endif
