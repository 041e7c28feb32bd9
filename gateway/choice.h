/* choice.h - one answer of a request: its sequence, what came of it, and the cursor of what was
 * written.
 *
 * Ids come in at worker speed and are only stored (4 B each; with logprobs their size). Text is
 * made when the door pulls: choice_next moves the cursor over ids until there is something to say.
 * Bytes that may begin a stop string, or an incomplete UTF-8 character, are held back;
 * visible_bytes from the worker is the end of the text. Thread: the loop.
 */
#ifndef SLUICE_GATEWAY_CHOICE_H
#define SLUICE_GATEWAY_CHOICE_H

#include "gateway/api_job.h"
#include "gateway/dispatch.h"
#include "gateway/usage.h"
#include "model/stop_match.h"

struct request;

struct choice {
    struct sequence seq;           /* first: dispatch gives it back as a pointer */
    struct request *request;
    const struct api_prompt *prompt;
    uint32_t index;
    /* records beyond ids, by index - from0; only with logprobs */
    uint32_t from0, n_lps, cap_lps;
    float *lps;
    uint8_t *n_tops;
    struct msg_top *tops;          /* n_lps x params.n_top */
    /* text */
    uint32_t cursor;               /* output ids rendered */
    struct stop_state stop;
    bool stopped;                  /* the gateway's own matcher saw the stop: feed it no more */
    uint64_t fed, sent;            /* visible bytes seen and released */
    struct buf raw;                /* released later: fed - sent bytes */
    struct detok detok;
    uint64_t chars;                /* code points of ids rendered so far (text_offset) */
    bool begun, finish_sent, counted; /* counted: in the metrics */
    enum finish finish;
    uint32_t visible;
    uint64_t first_ns, last_ns;
    struct usage_mark used;        /* counted once in the usage, over restarts */
    uint32_t charged;              /* most output ids charged to the tenant: never twice after a restart */
};

/* What one event says. Ids [first, first + n) of the output; prompt = the prompt's own text and
 * scores come first. */
struct piece {
    bool begins, prompt;
    uint32_t first, n;
    uint64_t chars;                /* code points before this piece's ids */
    enum finish finish;
};

/* Fills seq.submit from the parameters; lists stay borrowed from `params` and `prompt`. The answer
 * ends at n_ctx. */
void choice_init(struct choice *c, struct request *r, uint32_t index,
                 const struct api_params *params, const struct api_prompt *prompt, uint64_t seed,
                 uint32_t n_ctx);
void choice_deinit(struct choice *c);
/* Store what was delivered. -1 = no memory. */
int choice_take(struct choice *c, const struct api_params *params, uint32_t index,
                const struct msg_record *records, uint32_t n, bool logprobs);
void choice_restart(struct choice *c);
/* true: `text` got the event's text (maybe none) and `p` says what it covers. */
bool choice_next(struct choice *c, const struct api_params *params, const struct model *m,
                 const struct stop_set *stops, struct buf *text, struct piece *p);

#endif
