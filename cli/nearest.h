/* nearest.h - which of the known words a mistyped one was meant to be. Thread: any. */
#ifndef SLUICE_CLI_NEAREST_H
#define SLUICE_CLI_NEAREST_H

#include <stddef.h>

#define NEAREST_WORD_MAX 40 /* longer words are never near anything */

/* Edits (insert, delete, change, swap of neighbours) from a to b; a large number when either is too
 * long. */
unsigned nearest_distance(const char *a, const char *b);
/* The word with the fewest edits, at most a third of its length (at least 1), or the one that `typed`
 * begins; NULL when none is near. Ties: the first. */
const char *nearest_word(const char *typed, const char *const *words, size_t n);

#endif
