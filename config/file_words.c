/* file_words.c - see file_words.h. */
#include "config/file_words.h"

#include <string.h>

bool file_word_ok(const char *text, size_t max) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t len = strlen(text);
    return len > 0 && len <= max && strspn(text, allowed) == len;
}

int file_values(const struct setting *rows, size_t n, char *const *texts, void *base,
                const char *path, const char *where, struct err *e) {
    for (size_t i = 0; i < n; i++) {
        struct err why;
        const char *text = texts[i] != NULL ? texts[i] : rows[i].def;
        /* the parser only adds the row's offset to what it is given */
        if (setting_parse(&rows[i], (struct settings *)base, text, &why) != 0)
            return err_set_param(e, ERR_BAD_FILE, rows[i].name, "%s: %s: %s", path, where, why.msg);
    }
    return 0;
}
