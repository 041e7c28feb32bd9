/* file_words.h - small rules that the files of tenants, keys and classes share. Internal to config/. */
#ifndef SLUICE_CONFIG_FILE_WORDS_H
#define SLUICE_CONFIG_FILE_WORDS_H

#include "config/table.h"

/* A name that goes into ids, labels and log lines: letters, digits, '.', '_', '-', 1 to max bytes. */
bool file_word_ok(const char *text, size_t max);
/* Each value of texts[0..n) that is not NULL (the defaults before them) into the fields of `base` that
 * rows[0..n) name. An error says `path: where: what`. */
int file_values(const struct setting *rows, size_t n, char *const *texts, void *base,
                const char *path, const char *where, struct err *e);

#endif
