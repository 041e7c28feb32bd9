/* message.h - the messages of the worker link, as C structs; docs/PROTOCOL.md is their table.
 *
 * Encoding: one ZeroMQ frame, a msgpack array [kind, fields...] with fields in the order of docs/PROTOCOL.md;
 * readers ignore additional trailing fields (how a later minor version adds one) and refuse missing ones. Nothing
 * received is trusted: proto/scan.h checks counts <= bytes left, depth and total before anything is
 * allocated, then msg_check holds every field to its bound (a breach = ERR_PROTOCOL, counted and dropped).
 *
 * Directions: w = worker to gateway, g = gateway to worker. Indexes as in base/submission.h. Durations in
 * ns, never clocks. Thread: any; a struct msg belongs to one thread at a time.
 */
#ifndef SLUICE_PROTO_MESSAGE_H
#define SLUICE_PROTO_MESSAGE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/submission.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTO_VERSION_MIN 1
#define PROTO_VERSION_MAX 1

#define MSG_BYTES_MAX (64u << 20)
#define MSG_NODES_MAX (4u << 20)   /* msgpack values in one message, at either end */
#define MSG_DEPTH_MAX 8            /* the deepest message today, TOKENS with alternatives, has 5 */
#define MSG_NAME_MAX 64
#define MSG_IDS_MAX (1u << 20)
#define MSG_STOPS_MAX 16
#define MSG_STOP_BYTES_MAX 1024
#define MSG_STOP_IDS_MAX 64
#define MSG_BIAS_MAX 1024
#define MSG_BOOKED_MAX 32          /* causes of a ledger on the wire */
#define MSG_TENANTS_MAX 1024       /* rows of tenants' counters in one TOKENS */
#define MSG_TOP_MAX 20
#define MSG_SALT_MAX 256
#define MSG_ENTRIES_MAX 65536
#define MSG_COST_MAX 32
#define MSG_SLOTS_MAX MSG_ENTRIES_MAX   /* a SYNC must be able to name them all */
#define MSG_VOCAB_MAX (1u << 24)
#define MSG_BLOCKS_MAX (1u << 30)
#define MSG_DURATION_MAX (1ull << 62)   /* ns; the sum of two is still below 2^63 */
/* Sampling values only have to be finite and harmless here; what a client may ask is the gateway's rule. */
#define MSG_FACTOR_MAX 1e6f
#define MSG_BIAS_ABS_MAX 1e6f
/* Logprobs on the wire lie in [MIN, MAX]; the encoder clamps (NaN and -inf become MIN), since a bad model
 * file must not stop a worker. MAX is over 0 for rounding. */
#define MSG_LOGPROB_MIN -1e30f
#define MSG_LOGPROB_MAX 1.0f

/* X(NAME, number, direction, meaning) */
#define MSG_LIST(X)                                                                                \
    X(HELLO, 1, "w", "who I am; repeated each second until answered")                              \
    X(HELLO_REPLY, 2, "g", "accepted with a version, or refused with a reason")                    \
    X(SYNC, 3, "w", "submissions I hold for this gateway's name")                                  \
    X(STATUS, 4, "w", "load, blocks, windows, step cost; each 250 ms and on change of draining")   \
    X(SUBMIT, 5, "g", "run this sequence")                                                         \
    X(CANCEL, 6, "g", "drop this submission")                                                      \
    X(TOKENS, 7, "w", "records from an index on, with the last ones the finish")                   \
    X(GAP, 8, "g", "send from this index on (also: yes, go on, after SYNC)")                       \
    X(ACK, 9, "g", "finish received")                                                              \
    X(PING, 10, "wg", "heartbeat, each 500 ms when nothing else was sent; 2 s of silence end the session") \
    X(DRAIN, 11, "g", "take no more, finish what runs, hand back the rest")                        \
    X(BYE, 12, "wg", "I leave in order")

enum msg_kind {
#define MSG_ENUM(name, number, dir, text) MSG_##name = number,
    MSG_LIST(MSG_ENUM)
#undef MSG_ENUM
};

struct msg_hello {
    uint32_t version_min, version_max;
    char name[MSG_NAME_MAX];       /* the worker's configured name */
    uint64_t incarnation;          /* random at process start */
    char model[128];
    struct hash128 tensors, vocab, chat_template, numerics;
    char family[32];
    uint32_t n_ctx, n_vocab, block_tokens, n_blocks, max_seqs, max_slots;
};

struct msg_hello_reply {
    bool accepted;
    uint32_t version;
    enum err_code code;            /* sent by name */
    char reason[256];
    char gateway[MSG_NAME_MAX];
    uint64_t incarnation;
};

struct msg_sync_entry { struct sub_id sub; uint32_t have; bool finished; };
struct msg_sync { struct msg_sync_entry *entries; uint32_t n; };

struct msg_status {
    uint64_t number;               /* rises with each STATUS of this incarnation */
    uint32_t n_classes;
    uint32_t waiting[CLASSES_MAX], active[CLASSES_MAX], window[CLASSES_MAX];
    uint32_t blocks_total, blocks_free;
    uint64_t steps, preemptions, parks, drops, step_ns;
    uint64_t busy_ns, uptime_ns;
    float cost[MSG_COST_MAX]; uint32_t n_cost; /* step-cost coefficients, ns: rank 0, then rank 1 */
    bool draining;
    /* added later, one array; all 0 from a worker that does not send it */
    uint32_t blocks_cached, host_total, host_free;
    uint64_t cache_hits, cache_misses, swap_ins, recomputes, copy_ns, faults, evictions;
    uint64_t started_tag[CLASSES_MAX]; /* n_classes: start tag of the one started last, 0 = none yet */
};

struct msg_bias { int32_t id; float bias; };
struct msg_stop { const char *p; uint32_t n; };

struct msg_submit {
    struct sub_id sub;
    uint8_t cls, rank;
    uint32_t ttft_ms, tpot_ms;     /* objective */
    char tenant[MSG_NAME_MAX];
    uint64_t tag;
    int32_t *ids; uint32_t n_ids, n_prompt;
    uint32_t from, max_total;
    uint32_t min_total;            /* min_tokens as an index: no end before it; 0 = none */
    uint64_t deadline_in_ns;       /* from receipt; 0 = none */
    uint64_t adapter;              /* 0; kept for LoRA */
    uint32_t kv_quota;             /* positions in device blocks that the tenant may hold on this worker; 0 = no
                                      quota, and what a gateway means that does not send it */
    const char *cache_salt; uint32_t n_cache_salt; /* any bytes; part of the prefix root beside the tenant; 0 = none */
    /* sampling */
    float temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
    uint64_t seed;                 /* already mixed with the choice's number */
    bool logprobs;                 /* records carry the logprob */
    uint8_t n_top;
    bool ignore_eos, include_stop;
    bool skip_special;             /* control tokens are invisible: stop strings match what is visible */
    int32_t *stop_ids; uint32_t n_stop_ids;
    struct msg_stop *stops; uint32_t n_stops;
    struct msg_bias *bias; uint32_t n_bias;
};

struct msg_top { int32_t id; float logprob; };
struct msg_record { int32_t id; float logprob; uint8_t n_top; struct msg_top *top; };
struct msg_tokens_entry {
    struct sub_id sub;
    uint32_t index, n;             /* records for indexes index .. index + n - 1 */
    struct msg_record *records;    /* without logprobs only `id` is meaningful; sent as a flat list of ids then */
    bool logprobs;
    enum finish finish;            /* with the last ones */
    uint32_t visible_bytes;        /* of the output text, with finish: stop text excluded unless asked for */
    uint32_t preemptions;          /* of this submission so far */
    uint32_t cached;               /* prompt positions that its first start took from the prefix cache; 0 from a
                                      worker that does not send it */
    uint64_t booked_ns[MSG_BOOKED_MAX]; uint32_t n_booked; /* with the finish: where its time here went
                                      (scheduler/ledger.h, the worker's causes in order); 0 from older workers */
};
struct msg_account { uint8_t cls; uint64_t prompt_first, output, recomputed, dropped; };
/* What a tenant had of a class since the worker's start, whichever gateway asked; a prompt counts with its first id. */
struct msg_tenant { char name[MSG_NAME_MAX]; uint8_t cls; uint64_t prompt_first, output; };
struct msg_tokens {
    struct msg_tokens_entry *entries; uint32_t n;
    struct msg_account *accounts; uint32_t n_accounts;
    struct msg_tenant *tenants; uint32_t n_tenants; /* what changed since the session's last one; none from older workers */
    bool tenants_all;              /* with these this session has shown all: who was not shown had nothing so far */
};

struct msg_sub { struct sub_id sub; uint32_t from; };  /* CANCEL, GAP (from), ACK */

struct msg {
    enum msg_kind kind;
    union {
        struct msg_hello hello;
        struct msg_hello_reply hello_reply;
        struct msg_sync sync;
        struct msg_status status;
        struct msg_submit submit;
        struct msg_tokens tokens;
        struct msg_sub sub;
    } u;
    void *arena;                   /* decoded messages: owner of all lists inside; msg_deinit frees it */
};

/* Append the encoding to `out` (sticky failure there). Asserts msg_check: values that came from a client
 * must have been checked before they are put here. A list that would pass MSG_BYTES_MAX or MSG_NODES_MAX
 * is the sender's to split (TOKENS: several messages with rising indexes). */
void msg_encode(struct buf *out, const struct msg *m);
/* 0, or -1 with ERR_PROTOCOL (or ERR_NO_MEMORY); nothing to free after -1. Lists live until msg_deinit; the
 * input may be freed at once. Stop strings are NUL-terminated (they may hold NUL inside: use n). */
int msg_decode(struct msg *m, const void *p, size_t n, struct err *e);
void msg_deinit(struct msg *m);
/* The bounds of docs/PROTOCOL.md, the same for both directions: 0, or -1 with ERR_PROTOCOL naming the field.
 * A gateway calls it before msg_encode on what a client's values went into (SUBMIT). */
int msg_check(const struct msg *m, struct err *e);
const char *msg_name(enum msg_kind k);   /* "HELLO"; "?" for a number of no message */

#endif
