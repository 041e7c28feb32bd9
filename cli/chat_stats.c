/* chat_stats.c - see chat_stats.h. */
#include "cli/chat_stats.h"

#include <stdlib.h>
#include <string.h>

void chat_stats_start(struct chat_stats *s, double now_ms) {
    memset(s, 0, sizeof(*s));
    s->sent_ms = now_ms;
}

void chat_stats_event(struct chat_stats *s, double now_ms, uint64_t tokens) {
    uint64_t fresh = tokens > s->seen_tokens ? tokens - s->seen_tokens : 1;
    if (s->first_ms == 0) {
        s->first_ms = now_ms;
    } else {
        double gap = (now_ms - s->last_ms) / (double)fresh;
        buf_add(&s->gaps, &gap, sizeof(gap));
    }
    s->last_ms = now_ms;
    s->seen_tokens = tokens > s->seen_tokens ? tokens : s->seen_tokens;
}

void chat_stats_end(struct chat_stats *s, double now_ms) {
    s->end_ms = now_ms;
}

void chat_stats_deinit(struct chat_stats *s) {
    buf_deinit(&s->gaps);
}

double chat_stats_ttft_ms(const struct chat_stats *s) {
    return s->first_ms > 0 ? s->first_ms - s->sent_ms : 0;
}

static int compare(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

double chat_stats_gap_ms(struct chat_stats *s, double q) {
    size_t n = s->gaps.len / sizeof(double);
    double v;
    if (n == 0)
        return 0;
    qsort(s->gaps.p, n, sizeof(double), compare);
    memcpy(&v, s->gaps.p + (size_t)(q * (double)(n - 1) + 0.5) * sizeof(double), sizeof(v));
    return v;
}

void chat_stats_print(struct chat_stats *s, FILE *f) {
    fprintf(f,
            "time to first token %.1f ms, %llu tokens (prompt %llu), ms per token p50 %.1f max "
            "%.1f, total %.1f ms\n",
            chat_stats_ttft_ms(s), (unsigned long long)s->tokens,
            (unsigned long long)s->prompt_tokens, chat_stats_gap_ms(s, 0.5), chat_stats_gap_ms(s, 1),
            s->end_ms - s->sent_ms);
}
