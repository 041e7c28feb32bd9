#include "base/fault.h"

#include <string.h>

enum fault fault_current = FAULT_NONE;

static const struct {
    const char *word, *what;
} fault_rows[FAULT_COUNT] = {
    {"none", "nothing goes wrong"},
#define FAULT_ROW(name, word, what) {word, what},
    FAULT_LIST(FAULT_ROW)
#undef FAULT_ROW
};

int fault_parse(const char *word)
{
    if (word[0] == '\0') return FAULT_NONE;
    for (int f = 0; f < FAULT_COUNT; f++) {
        if (strcmp(word, fault_rows[f].word) == 0) return f;
    }
    return -1;
}

const char *fault_word(enum fault f)
{
    return fault_rows[f].word;
}

const char *fault_what(enum fault f)
{
    return fault_rows[f].what;
}

void fault_set(enum fault f)
{
    fault_current = f;
}
