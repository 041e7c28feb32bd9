/* nearest.c - see nearest.h. */
#include "cli/nearest.h"

#include <string.h>

#define FAR 1000u

static unsigned least(unsigned a, unsigned b, unsigned c) {
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

unsigned nearest_distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    if (na > NEAREST_WORD_MAX || nb > NEAREST_WORD_MAX)
        return FAR;
    /* Three rows of the table: a swap looks two rows back. */
    unsigned rows[3][NEAREST_WORD_MAX + 1];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *row = rows[i % 3], *up = rows[(i - 1) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned change = up[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(up[j] + 1, row[j - 1] + 1, change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < row[j])
                row[j] = up2[j - 2] + 1;
        }
    }
    return rows[na % 3][nb];
}

const char *nearest_word(const char *typed, const char *const *words, size_t n) {
    const char *best = NULL, *begun = NULL;
    unsigned fewest = FAR;
    for (size_t i = 0; i < n; i++) {
        unsigned d = nearest_distance(typed, words[i]);
        unsigned limit = (unsigned)strlen(words[i]) / 3;
        if (d <= (limit > 0 ? limit : 1) && d < fewest) {
            fewest = d;
            best = words[i];
        }
        if (begun == NULL && typed[0] != '\0' && strncmp(typed, words[i], strlen(typed)) == 0)
            begun = words[i];
    }
    return best != NULL ? best : begun;
}
