/* err.c - filling of struct err, and the columns of the error list. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define UTF8_IS_TAIL(c) (((unsigned char)(c) & 0xC0) == 0x80)

struct row {
    const char *name, *code, *type;
    int http;
    bool retryable;
};

static const struct row rows[ERR_COUNT] = {
#define ERR_ROW(name, code, type, http, retry) {#name, code, type, http, retry},
    ERR_LIST(ERR_ROW)
#undef ERR_ROW
};

/* Shortens s (n bytes, cut by force) so that it does not end inside a UTF-8 character. */
static void drop_torn_tail(char *s, size_t n) {
    size_t tails = 0;
    while (tails < 3 && tails < n && UTF8_IS_TAIL(s[n - 1 - tails]))
        tails++;
    if (tails == n)
        return;
    unsigned char lead = (unsigned char)s[n - 1 - tails];
    size_t want = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (want > tails)
        s[n - 1 - tails] = '\0';
}

/* The text is made aside first: callers may pass e->msg itself as an argument to add context. */
static void fill(struct err *e, enum err_code code, const char *param, const char *fmt,
                 va_list ap) {
    char msg[ERR_MSG_MAX], field[ERR_PARAM_MAX];
    int n = vsnprintf(msg, sizeof(msg), fmt, ap);
    if (n < 0)
        msg[0] = '\0';
    else if ((size_t)n >= sizeof(msg))
        drop_torn_tail(msg, sizeof(msg) - 1);
    n = snprintf(field, sizeof(field), "%s", param);
    if (n >= (int)sizeof(field))
        drop_torn_tail(field, sizeof(field) - 1);
    e->code = code;
    memcpy(e->msg, msg, strlen(msg) + 1);
    memcpy(e->param, field, strlen(field) + 1);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...) {
    if (e != NULL) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, "", fmt, ap);
        va_end(ap);
    }
    return -1;
}

int err_set_param(struct err *e, enum err_code code, const char *param, const char *fmt, ...) {
    if (e != NULL) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, param != NULL ? param : "", fmt, ap);
        va_end(ap);
    }
    return -1;
}

void err_clear(struct err *e) {
    if (e != NULL)
        *e = (struct err){.code = ERR_OK};
}

/* A code may come off the wire or a file; whatever is outside the list reads as INTERNAL. */
static const struct row *row_of(enum err_code code) {
    return &rows[(unsigned)code < ERR_COUNT ? code : ERR_INTERNAL];
}

const char *err_name(enum err_code code) {
    return row_of(code)->name;
}

const char *err_code_text(enum err_code code) {
    return row_of(code)->code;
}

const char *err_type(enum err_code code) {
    return row_of(code)->type;
}

int err_http_status(enum err_code code) {
    return row_of(code)->http;
}

bool err_retryable(enum err_code code) {
    return row_of(code)->retryable;
}

enum err_code err_by_name(const char *name) {
    for (int i = 0; name != NULL && i < ERR_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (enum err_code)i;
    return ERR_INTERNAL;
}
