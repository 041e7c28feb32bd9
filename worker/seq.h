/* seq.h - what the worker keeps of one submission: ids, boundary, parameters, records, stop state.
 *
 * Made off the step path, by the link thread, from a decoded SUBMIT, with every array at its final
 * size (one allocation, plus the stop automaton); handed to the step loop, which owns it from then
 * on and frees it. So no token allocates. What the scheduler decides from (counts) is not here but
 * in worker_core. A SUBMIT that is not valid for this model still becomes a seq, with `refused` set
 * and no ids: its finish REFUSED needs a place until it is acknowledged. Index: absolute, prompt
 * included (base/submission.h). Memory: seq_bytes.
 */
#ifndef SLUICE_WORKER_SEQ_H
#define SLUICE_WORKER_SEQ_H

#include "proto/message.h"
#include "worker/engine/engine.h"
#include "worker/stopper.h"

struct seq_limits { /* what a SUBMIT is checked against; lives as long as the worker */
    const struct vocab *vocab;
    uint32_t n_vocab, n_ctx, n_classes;
    bool prefix_cache;
    uint64_t cache_key; /* of the roots: numerics id and a random number of this process */
};

struct seq {
    struct sub_id sub;
    const char *refused; /* static text: why the SUBMIT is not valid; NULL = valid */
    uint8_t cls;
    uint64_t tag;
    uint32_t ttft_ms, tpot_ms; /* objectives, 0 = the class's */
    char tenant_name[MSG_NAME_MAX];
    uint64_t tenant;           /* hash of its name */
    uint32_t kv_quota;         /* positions, 0 = none */
    uint32_t account;          /* of the tenant, given by seq_store */
    struct hash128 root;       /* of its prefixes: keyed by tenant, adapter, salt; 0 = takes no hits */
    uint32_t n_prompt, from;
    int32_t *ids;
    uint32_t n_ids;              /* known now; room for max_total */
    uint32_t n_submitted;        /* n_ids of the SUBMIT */
    struct sample_params params; /* position, history and banned are filled for each step */
    bool penalties;              /* the sampler needs the history */
    int32_t *banned;
    uint32_t n_banned;
    struct stop_rules rules; /* min_total, max_total inside */
    struct stop_set *stops;
    struct stopper stop, stop_before; /* now, and before the last output id */
    enum finish finish;               /* decided with the last id made */
    /* Log-probabilities of indexes rec_from .. max_total - 1; none without `logprobs`. */
    bool logprobs;
    uint8_t n_top;
    uint32_t rec_from;
    float *logprob;
    uint8_t *top_count;
    struct sample_top *top; /* n_top an index */
    uint32_t preemptions;   /* times it was computed again, in part at least, after losing its blocks */
    uint32_t computed;      /* positions of the last confirmed span, to see that */
    size_t bytes;
};

/* NULL = no memory. The message is not needed afterwards. */
struct seq *seq_create(const struct msg_submit *m, const struct seq_limits *l);
void seq_destroy(struct seq **s);
/* The largest a sequence can be: whole context, most alternatives, longest lists. */
size_t seq_bytes_max(const struct seq_limits *l);

/* Why a SUBMIT is not valid, or NULL. */
const char *seq_validate(const struct msg_submit *m, const struct seq_limits *l);

/* Append the id made for `index` and decide the finish. An index below n_ids takes the last id back
 * first: a dropped span's token may be made again, and is the same then (E5). */
enum finish seq_push(struct seq *s, const struct vocab *v, uint32_t index,
                     const struct sample_result *r);
/* Keep the log-probability of a known id (prompt scores). */
void seq_score(struct seq *s, uint32_t index, const struct sample_result *r);
/* Parameters for drawing the id at `index`; valid until the seq changes. */
void seq_params(const struct seq *s, uint32_t index, struct sample_params *out);
/* What an id is drawn with depends on the one before it (penalties), or on counts kept here. */
bool seq_host_choice(const struct seq *s);
/* Record of `index` for the link; `top` has room for SAMPLE_TOP_MAX and may be NULL without
 * logprobs. */
void seq_record(const struct seq *s, uint32_t index, struct msg_record *out, struct msg_top *top);

#endif
