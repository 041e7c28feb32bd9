/* jinja_lex.h - cuts a template into tokens, with white space control as chat templates expect it.
 *
 * trim_blocks and lstrip_blocks are on: the newline after a block or comment tag goes, and white
 * space before one on its own line; `-` and `+` in a tag say otherwise. One newline at the end of
 * the file goes. Order: jlex_init, then jlex_next until JTOK_EOF. Failure: -1, the run's error set.
 */
#ifndef SLUICE_MODEL_JINJA_LEX_H
#define SLUICE_MODEL_JINJA_LEX_H

#include "model/jinja_run.h"

#include <stdbool.h>

enum jtok_kind {
    JTOK_EOF,
    JTOK_DATA,        /* literal text, never empty */
    JTOK_VAR_BEGIN,
    JTOK_VAR_END,
    JTOK_BLOCK_BEGIN,
    JTOK_BLOCK_END,
    JTOK_NAME,
    JTOK_STRING,      /* p, n: unescaped */
    JTOK_INT,
    JTOK_FLOAT,
    JTOK_OP
};

struct jtok {
    enum jtok_kind kind;
    uint32_t line;
    const char *p; /* in the run's arena */
    size_t n;
    int64_t i;
    double f;
};

struct jlex {
    struct jrun *run;
    const char *src; /* newlines normalised */
    size_t n, pos;
    uint32_t line;
    enum { JLEX_DATA, JLEX_VAR, JLEX_BLOCK } mode;
    uint32_t brackets;  /* open in this tag: `}}` inside a dict does not end it */
    bool line_starting; /* the last thing consumed ended a line */
};

int jlex_init(struct jlex *lx, struct jrun *r, const char *src, size_t n);
int jlex_next(struct jlex *lx, struct jtok *t);

/* Unescapes the inside of a string literal (jinja_string.c). */
int jlex_unescape(struct jrun *r, const char *p, size_t n, struct jtok *t);

#endif
