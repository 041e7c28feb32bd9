#include "base/submission.h"

#include <stddef.h>
#include <string.h>

static const struct { const char *text, *openai; } rows[FINISH_COUNT] = {
#define FINISH_ROW(name, text, openai) {text, openai},
    FINISH_LIST(FINISH_ROW)
#undef FINISH_ROW
};

const char *finish_text(enum finish f)
{
    return (unsigned)f < FINISH_COUNT ? rows[f].text : "?";
}

const char *finish_openai(enum finish f)
{
    return (unsigned)f < FINISH_COUNT ? rows[f].openai : NULL;
}

int finish_parse(const char *text)
{
    for (int i = 0; i < FINISH_COUNT; i++) {
        if (strcmp(rows[i].text, text) == 0) return i;
    }
    return -1;
}
