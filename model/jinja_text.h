/* jinja_text.h - strings of the interpreter: UTF-8 text in which every byte knows whose it is.
 *
 * A text is flat (bytes, and marks saying which runs are the template's own) or a rope of two texts
 * (so that joining is O(1) and a long message is never copied); jtext_flat turns a rope into a flat
 * text in place. Texts of one kind throughout carry no marks. Flat texts are never written again,
 * so constants of a parsed template are shared by all threads.
 *
 * The rule of the marks: own only when computed from own text alone. Where what is kept or where it
 * goes depends on a caller's value (a caller's search text, strip set, index), all of it is the
 * caller's. Never the other way round: own text may become control tokens.
 */
#ifndef SLUICE_MODEL_JINJA_TEXT_H
#define SLUICE_MODEL_JINJA_TEXT_H

#include "model/jinja_run.h"

#include <stdbool.h>

struct jmark { size_t end; bool own; }; /* bytes from the mark before up to `end` */

struct jtext {
    size_t n;                  /* bytes */
    const char *p;             /* NULL for a rope; not NUL-terminated */
    const struct jmark *marks; /* NULL: all `own` or all not */
    size_t n_marks;
    bool own;
    struct jtext *l, *r;       /* of a rope */
};

/* Builds a flat text from pieces. Zero-initialised plus `run` is empty. */
struct jbuild {
    struct jrun *run;
    char *p;
    size_t n, cap;
    struct jmark *marks;
    size_t n_marks, cap_marks;
};
int jbuild_add(struct jbuild *b, const char *p, size_t n, bool own);
int jbuild_sub(struct jbuild *b, struct jtext *t, size_t from, size_t to); /* flat t; keeps marks */
int jbuild_text(struct jbuild *b, struct jtext *t);
struct jtext *jbuild_done(struct jbuild *b);

struct jtext *jtext_borrow(struct jrun *r, const char *p, size_t n, bool own); /* p must live on */
struct jtext *jtext_copy(struct jrun *r, const char *p, size_t n, bool own);
struct jtext *jtext_cat(struct jrun *r, struct jtext *a, struct jtext *b);
int jtext_flat(struct jrun *r, struct jtext *t);
/* The rest flatten their arguments themselves. */
bool jtext_all_own(const struct jtext *t); /* flat t; true for the empty text */
struct jtext *jtext_sub(struct jrun *r, struct jtext *t, size_t from, size_t to); /* bytes */
struct jtext *jtext_taint(struct jrun *r, struct jtext *t); /* the same text, all the caller's */
int jtext_cmp(struct jrun *r, struct jtext *a, struct jtext *b, int *out);
/* The byte where `what` starts, SIZE_MAX: nowhere. Both flat. */
size_t jtext_find(const struct jtext *t, const struct jtext *what, size_t from);

/* ASCII letters only. TITLE: a word ends at anything but a letter (the method). WORDS: at white
 * space and opening brackets (the filter). */
enum jtext_case { JTEXT_UPPER, JTEXT_LOWER, JTEXT_CAPITALIZE, JTEXT_TITLE, JTEXT_WORDS };
struct jtext *jtext_case(struct jrun *r, struct jtext *t, enum jtext_case how);
/* chars NULL: Unicode white space. Sides: bit 0 left, bit 1 right. */
struct jtext *jtext_strip(struct jrun *r, struct jtext *t, struct jtext *chars, unsigned sides);
/* At most `max` times, < 0 = all. An empty `old` is refused. */
struct jtext *jtext_replace(struct jrun *r, struct jtext *t, struct jtext *old, struct jtext *new_,
                            int64_t max);

/* Code points: their count, and the byte where the i-th one (0..count) starts. */
size_t jtext_length(const struct jtext *t);
size_t jtext_offset(const struct jtext *t, size_t i);
/* Bytes of the white space character (as Python's str.isspace) at the start / end of p; 0: none. */
size_t jspace_at(const char *p, size_t n);
size_t jspace_before(const char *p, size_t n);

#endif
