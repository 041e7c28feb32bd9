/* bench_answer.h - what a streamed reply said and when: read once the measurement is over.
 *
 * Takes the raw bytes and times of an HTTP call (http_client.h). A piece is an event that carries
 * text (completions' `text`, chat's `delta.content`): what a user sees appear. A reply cut off in
 * the middle gives what came before. Thread: any. Failure: -1 = no memory or an event that is no
 * JSON (then `bad` says why).
 */
#ifndef SLUICE_CLI_BENCH_ANSWER_H
#define SLUICE_CLI_BENCH_ANSWER_H

#include "cli/http_client.h"

struct answer_piece {
    double at_ms;
    uint32_t tokens; /* made so far, as the server says; else pieces so far */
};

struct answer {
    bool whole; /* 200, a finish reason, [DONE], ended in order */
    bool error; /* an event named error came */
    uint32_t n_pieces, cap;
    struct answer_piece *pieces;
    struct buf text;
    uint32_t tokens, prompt_tokens; /* as the server counts; 0 = it does not say */
    char finish[16];
    double finish_ms; /* when the finish reason came */
    char bad[80];
};

int answer_read(struct answer *a, const struct http_call *call);
void answer_deinit(struct answer *a);
/* Same text, count of tokens and finish reason, both whole. */
bool answer_same(const struct answer *a, const struct answer *b);
/* First piece, or the finish of an answer without visible text; < 0 = nothing came. */
double answer_first_ms(const struct answer *a);
double answer_last_ms(const struct answer *a);

#endif
