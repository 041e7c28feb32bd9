/* sse.c - see sse.h. */
#include "cli/sse.h"

#include <stdio.h>
#include <string.h>

#define BOM "\xef\xbb\xbf"

void sse_init(struct sse *s, void (*event)(void *ctx, const char *name, const char *data, size_t n),
              void *ctx) {
    memset(s, 0, sizeof(*s));
    s->event = event;
    s->ctx = ctx;
    buf_init(&s->line, SSE_LINE_MAX);
    buf_init(&s->data, SSE_LINE_MAX);
}

void sse_deinit(struct sse *s) {
    buf_deinit(&s->line);
    buf_deinit(&s->data);
}

static void dispatch(struct sse *s) {
    if (s->has_data && !s->data.bad)
        s->event(s->ctx, s->name, buf_str(&s->data), s->data.len);
    buf_clear(&s->data);
    s->name[0] = '\0';
    s->has_data = false;
}

static bool is_field(const char *line, size_t n, const char *name) {
    return strlen(name) == n && memcmp(line, name, n) == 0;
}

static void field(struct sse *s, const char *line, size_t n) {
    const char *colon = memchr(line, ':', n);
    size_t n_name = colon != NULL ? (size_t)(colon - line) : n;
    const char *value = colon != NULL ? colon + 1 : line + n;
    if (value < line + n && *value == ' ')
        value++;
    size_t n_value = (size_t)(line + n - value);
    if (is_field(line, n_name, "data")) {
        if (s->has_data)
            buf_addc(&s->data, '\n');
        buf_add(&s->data, value, n_value);
        s->has_data = true;
    } else if (is_field(line, n_name, "event")) {
        snprintf(s->name, sizeof(s->name), "%.*s", (int)n_value, value);
    }
}

static void line_ends(struct sse *s) {
    const char *line = s->line.p;
    size_t n = s->line.len;
    if (!s->begun && n >= 3 && memcmp(line, BOM, 3) == 0) {
        line += 3;
        n -= 3;
    }
    s->begun = true;
    if (n == 0)
        dispatch(s);
    else if (line[0] != ':')
        field(s, line, n);
    s->line.len = 0;
}

int sse_push(struct sse *s, const char *p, size_t n) {
    const char *end = p + n;
    while (p < end && !s->line.bad && !s->data.bad) {
        if (s->after_cr && *p == '\n') {
            s->after_cr = false;
            p++;
            continue;
        }
        s->after_cr = false;
        const char *at = p;
        while (at < end && *at != '\n' && *at != '\r')
            at++;
        buf_add(&s->line, p, (size_t)(at - p));
        p = at;
        if (at == end || s->line.bad)
            break;
        s->after_cr = *at == '\r';
        p++;
        line_ends(s);
    }
    return s->line.bad || s->data.bad ? -1 : 0;
}
