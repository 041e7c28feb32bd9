/* flags.h - the flags of `chat` and `batch run`: a table a command, --name VALUE or --name=VALUE.
 *
 * (`up` takes its flags from config/, which programs share; these belong to one command each.)
 * `--` ends the flags; "-" is a word. The last of a repeated flag counts. A flag not given leaves its
 * variable alone. Thread: any. Failure: -1 and one sentence that names the flag.
 */
#ifndef SLUICE_CLI_FLAGS_H
#define SLUICE_CLI_FLAGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum flag_kind {
    FLAG_TEXT, /* const char **; points into argv */
    FLAG_INT,  /* int64_t *, min to max */
    FLAG_REAL, /* double *, min to max, finite */
    FLAG_BOOL, /* bool *; takes no value */
};

struct flag {
    const char *name;
    enum flag_kind kind;
    void *out;
    double min, max;
    const char *unit, *help; /* unit: what stands for the value in --help */
};

struct flags {
    const struct flag *table;
    size_t n;
    const char **words; /* in: room for words_max; out: what is no flag */
    size_t n_words, words_max;
    bool help;          /* --help or -h was given; nothing else is looked at then */
};

int flags_parse(struct flags *f, int argc, char **argv, struct err *e);
void flags_help(FILE *out, const struct flag *table, size_t n);

#endif
