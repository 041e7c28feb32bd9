/* batch_progress.c - see batch_progress.h. */
#include "cli/batch_progress.h"

#include <stdarg.h>
#include <string.h>

#define TTY_MS 200
#define PLAIN_MS 5000

void batch_progress_start(struct batch_progress *p, FILE *out, bool tty, double now_ms) {
    p->out = out;
    p->tty = tty;
    p->start_ms = now_ms;
    p->shown_ms = tty ? 0 : now_ms;
}

static void put_duration(struct buf *out, double seconds) {
    unsigned long long s = (unsigned long long)(seconds + 0.5);
    if (s >= 3600)
        buf_addf(out, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    else
        buf_addf(out, "%llu:%02llu", s / 60, s % 60);
}

void batch_progress_text(const struct batch_progress *p, double now_ms, struct buf *out) {
    double seconds = (now_ms - p->start_ms) / 1e3;
    uint64_t here = p->done - p->before;
    buf_addf(out, "%llu/%llu done, %llu failed, %.1f tokens/s", (unsigned long long)p->done,
             (unsigned long long)p->total, (unsigned long long)p->failed,
             seconds > 0 ? (double)p->tokens / seconds : 0);
    if (here > 0 && p->done < p->total) {
        buf_adds(out, ", ");
        put_duration(out, seconds * (double)(p->total - p->done) / (double)here);
        buf_adds(out, " left");
    }
}

int batch_progress_due(const struct batch_progress *p, double now_ms) {
    if (p->out == NULL)
        return -1;
    double left = p->shown_ms + (p->tty ? TTY_MS : PLAIN_MS) - now_ms;
    return left > 0 ? (int)left + 1 : 0;
}

void batch_progress_show(struct batch_progress *p, double now_ms) {
    struct buf text = {0};
    if (p->out == NULL || batch_progress_due(p, now_ms) != 0)
        return;
    batch_progress_text(p, now_ms, &text);
    fprintf(p->out, p->tty ? "\r\033[K%s" : "%s\n", buf_str(&text));
    fflush(p->out);
    p->drawn = p->tty;
    p->shown_ms = now_ms;
    buf_deinit(&text);
}

void batch_progress_clear(struct batch_progress *p) {
    if (p->drawn)
        fprintf(p->out, "\r\033[K");
    p->drawn = false;
}

void batch_progress_note(struct batch_progress *p, const char *fmt, ...) {
    va_list ap;
    batch_progress_clear(p);
    va_start(ap, fmt);
    fprintf(stderr, "sluice batch: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    p->shown_ms = p->tty ? 0 : p->shown_ms;
}
