/* jinja_run.h - what one parse or one rendering of a chat template may use: memory, work, depth.
 *
 * Every value of a rendering lives in the arena and dies with it, so no value has an owner. All
 * limits of the interpreter meet here: bytes of arena, steps, and the place where an error is told
 * with the template's line. Failure: -1 or NULL with `e` filled. Thread: one run, one thread.
 */
#ifndef SLUICE_MODEL_JINJA_RUN_H
#define SLUICE_MODEL_JINJA_RUN_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define JRUN_ARENA_MAX ((size_t)160 << 20) /* bytes; ten times CHAT_RENDER_MAX */
#define JRUN_STEPS_MAX 1000000u            /* nodes evaluated, items made, KiB of text touched */
#define JRUN_DEPTH_MAX 64                  /* nesting of statements, and of expressions */
#define JRUN_VALUE_DEPTH_MAX 128           /* nesting of lists and objects */

struct jchunk;

struct jrun {
    struct jchunk *chunks;
    size_t used;    /* bytes of arena taken from the memory door */
    uint64_t steps; /* taken so far */
    uint32_t line;  /* of the construct being worked on, for messages */
    struct err *e;
};

void jrun_init(struct jrun *r, struct err *e);
void jrun_deinit(struct jrun *r);
/* Zeroed, aligned for any type; NULL and the error set when out of memory or over the arena. */
void *jrun_alloc(struct jrun *r, size_t n);
void *jrun_array(struct jrun *r, size_t count, size_t size);
char *jrun_strndup(struct jrun *r, const char *p, size_t n);
/* Grows an array to hold `need` items: returns the place of the items (maybe moved) or NULL. */
void *jrun_grow(struct jrun *r, void *p, size_t *cap, size_t need, size_t size);
/* Counts one step and `bytes` of text touched (a step per KiB): -1 and ERR_TOO_LARGE over the
 * limit, so that neither a loop nor a long text searched again and again can hold a thread. */
int jrun_step(struct jrun *r, size_t bytes);
/* Sets "chat template line N: ..." and returns -1. */
int jrun_fail(struct jrun *r, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
