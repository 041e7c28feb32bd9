/* gateway_book.h - a small gateway for tests: a book of sequences that it submits, follows, resumes
 * and cancels by the rules of the link, checking that nothing comes twice or changes.
 */
#ifndef SLUICE_TESTS_GATEWAY_BOOK_H
#define SLUICE_TESTS_GATEWAY_BOOK_H

#include "tests/unit/worker/worker_rig.h"

#define BOOK_SEED 4242
#define BOOK_LINES 20
#define BOOK_PROMPT_MAX 70
#define BOOK_OUT_MAX 60

enum line_state { LINE_WAITS, LINE_SENT, LINE_DONE };

struct line { /* a sequence */
    int32_t ids[BOOK_PROMPT_MAX + BOOK_OUT_MAX];
    uint32_t n_prompt, n, max_total;
    uint8_t cls;
    float temperature;
    enum line_state state;
    struct sub_id sub;
    enum finish finish;
    uint32_t visible, cancel_at; /* cancel once so many ids are there; 0 = never */
};

struct book { /* the gateway's */
    struct line lines[BOOK_LINES];
    uint32_t n;
    uint64_t counter, submits, tokens, syncs;
    bool live; /* SYNC answered */
};

void book_line(struct line *l, uint32_t i); /* line i of BOOK_SEED: always the same */
void book_send(struct rig_gateway *g, struct book *b, struct line *l);
void book_message(struct rig_gateway *g, struct book *b, const struct msg *m);
/* Runs the book to its end; cuts the link after each `cut_every` ids (0 = never). */
void book_run(struct rig_gateway *g, struct book *b, uint64_t cut_every);
/* `got` is what the line gives alone, or a beginning of it when it was cancelled. */
void book_compare(const struct line *alone, const struct line *got, uint32_t i);

#endif
