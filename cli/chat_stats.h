/* chat_stats.h - what a stream felt like: time to first token, gaps between events, total.
 *
 * Times are the caller's, in ms from one clock. A gap is the time between two events that carried text;
 * an event may carry several tokens, so the gap is divided by the tokens that came with it where the server says.
 * Thread: one owner.
 */
#ifndef SLUICE_CLI_CHAT_STATS_H
#define SLUICE_CLI_CHAT_STATS_H

#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>

struct chat_stats {
    double sent_ms, first_ms, last_ms, end_ms; /* first_ms 0 = no token yet */
    uint64_t prompt_tokens, tokens;            /* as the server counts them; 0 = not said */
    uint64_t seen_tokens;                      /* at the last event */
    struct buf gaps;                           /* doubles, ms per token */
};

void chat_stats_start(struct chat_stats *s, double now_ms);
/* One event with text; `tokens` so far, 0 = not said. */
void chat_stats_event(struct chat_stats *s, double now_ms, uint64_t tokens);
void chat_stats_end(struct chat_stats *s, double now_ms);
void chat_stats_deinit(struct chat_stats *s);

double chat_stats_ttft_ms(const struct chat_stats *s);
/* Value at share q of the sorted gaps (0.5 = median, 1 = largest); 0 when there is none. */
double chat_stats_gap_ms(struct chat_stats *s, double q);
void chat_stats_print(struct chat_stats *s, FILE *f);

#endif
