/* value.c - text to value and back for each kind of setting. Own number parsing: strtol and strtod
 * take white space, signs, hex, exponents and the locale's comma, none of which a flag should.
 */
#include "config/table.h"

#include <assert.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *field_of(const struct setting *row, const struct settings *s) {
    return (char *)(uintptr_t)s + row->offset;
}

/* Reads decimal digits at *p; -1 when there is none or the number leaves 2^53 (exact in a double).
 */
static int64_t read_digits(const char **p) {
    int64_t v = 0;
    const char *start = *p;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        v = v * 10 + (**p - '0');
        if (v > (1ll << 53))
            return -1;
    }
    return *p == start ? -1 : v;
}

static int parse_int(const char *text, int64_t *out) {
    bool negative = *text == '-';
    const char *p = text + negative;
    int64_t v = read_digits(&p);
    if (v < 0)
        return -1;
    int shift = 0;
    if (*p == 'k' || *p == 'K')
        shift = 10;
    else if (*p == 'm' || *p == 'M')
        shift = 20;
    else if (*p == 'g' || *p == 'G')
        shift = 30;
    p += shift != 0;
    if (*p != '\0' || v > ((1ll << 53) >> shift))
        return -1;
    *out = negative ? -(v << shift) : v << shift;
    return 0;
}

/* Thousandths, so that a value goes to text and back unchanged; -1 = no such number. */
static int64_t read_thousandths(const char **p) {
    int64_t whole = read_digits(p), thousandths = 0;
    if (whole < 0 || whole > 1000000000)
        return -1;
    if (**p == '.') {
        (*p)++;
        int64_t scale = 100;
        if (**p < '0' || **p > '9')
            return -1;
        for (; **p >= '0' && **p <= '9' && scale > 0; (*p)++, scale /= 10)
            thousandths += (**p - '0') * scale;
    }
    return whole * 1000 + thousandths;
}

static int parse_number(const char *text, int64_t *out) {
    *out = read_thousandths(&text);
    return *out >= 0 && *text == '\0' ? 0 : -1;
}

static int parse_ms(const char *text, int64_t *out) {
    const char *p = text;
    int64_t v = read_thousandths(&p);
    if (v < 0)
        return -1;
    if (strcmp(p, "ms") == 0) {
        if (v % 1000 != 0)
            return -1;
        v /= 1000;
    } else if (strcmp(p, "m") == 0) {
        v *= 60;
    } else if (strcmp(p, "h") == 0) {
        v *= 3600;
    } else if (*p != '\0' && strcmp(p, "s") != 0) {
        return -1;
    }
    *out = v;
    return 0;
}

static int parse_bool(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return 0;
        }
    }
    return -1;
}

static int parse_choice(const char *words, const char *text, int *out) {
    size_t len = strlen(text);
    for (int i = 0;; i++) {
        size_t n = strcspn(words, "|");
        if (n == len && n > 0 && memcmp(words, text, n) == 0) {
            *out = i;
            return 0;
        }
        if (words[n] == '\0')
            return -1;
        words += n + 1;
    }
}

static const char *home_dir(void) {
    const char *home = getenv("HOME");
    if (home != NULL && home[0] == '/')
        return home;
    const struct passwd *pw = getpwuid(getuid()); /* at start, before any thread */
    return pw != NULL && pw->pw_dir != NULL ? pw->pw_dir : "";
}

static int parse_text(const struct setting *row, char *out, const char *text, struct err *e) {
    char value[SETTINGS_TEXT_MAX];
    for (const char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            return err_set_param(e, ERR_BAD_VALUE, row->name, "%s: holds a control character",
                                 row->name);
    bool home = row->kind == SETTING_PATH && text[0] == '~' && (text[1] == '/' || text[1] == '\0');
    int n = snprintf(value, sizeof(value), "%s%s", home ? home_dir() : "", home ? text + 1 : text);
    if (n >= (int)sizeof(value))
        return err_set_param(e, ERR_BAD_VALUE, row->name, "%s: longer than %d bytes", row->name,
                             SETTINGS_TEXT_MAX - 1);
    memcpy(out, value, (size_t)n + 1);
    return 0;
}

static int bad_value(const struct setting *row, const char *value, struct err *e) {
    char range[128];
    setting_range(row, range, sizeof(range));
    return err_set_param(e, ERR_BAD_VALUE, row->name, "%s: '%.80s' is not valid, expected %s",
                         row->name, value, range);
}

static int64_t auto_value(const struct setting *row) {
    return row->min > 0 ? 0 : -1;
}

static int parse_auto_int(const struct setting *row, const char *text, int64_t *out) {
    bool is_auto = strcmp(text, "auto") == 0 || (row->min > 0 && strcmp(text, "0") == 0);
    if (!is_auto)
        return parse_int(text, out) == 0 && (double)*out >= row->min ? 0 : -1;
    *out = auto_value(row);
    return 0;
}

int setting_parse(const struct setting *row, struct settings *s, const char *value, struct err *e) {
    void *field = field_of(row, s);
    int64_t v = 0;
    switch (row->kind) {
    case SETTING_TEXT:
    case SETTING_PATH:
        return parse_text(row, field, value, e);
    case SETTING_BOOL:
        return parse_bool(value, field) == 0 ? 0 : bad_value(row, value, e);
    case SETTING_CHOICE:
        return parse_choice(row->unit, value, field) == 0 ? 0 : bad_value(row, value, e);
    case SETTING_NUMBER:
    case SETTING_SECONDS:
        if ((row->kind == SETTING_SECONDS ? parse_ms : parse_number)(value, &v) != 0 || (double)v / 1000 < row->min || (double)v / 1000 > row->max)
            return bad_value(row, value, e);
        *(double *)field = (double)v / 1000;
        return 0;
    case SETTING_AUTO_INT:
        if (parse_auto_int(row, value, &v) != 0 || (double)v > row->max)
            return bad_value(row, value, e);
        *(int64_t *)field = v;
        return 0;
    case SETTING_INT:
        if (parse_int(value, &v) != 0 || (double)v < row->min || (double)v > row->max)
            return bad_value(row, value, e);
        *(int64_t *)field = v;
        return 0;
    }
    assert(!"kind of setting");
    return -1;
}

static int format_thousandths(double v, char *out, size_t cap) {
    long long ms = llround(v * 1000); /* thousandths */
    if (ms % 1000 == 0)
        return snprintf(out, cap, "%lld", ms / 1000);
    int n = snprintf(out, cap, "%lld.%03lld", ms / 1000, ms % 1000);
    while (n > 0 && (size_t)n < cap && out[n - 1] == '0')
        out[--n] = '\0';
    return n;
}

int setting_format(const struct setting *row, const struct settings *s, char *out, size_t cap) {
    const void *field = field_of(row, s);
    int n = -1;
    switch (row->kind) {
    case SETTING_TEXT:
    case SETTING_PATH:
        n = snprintf(out, cap, "%s", (const char *)field);
        break;
    case SETTING_BOOL:
        n = snprintf(out, cap, "%s", *(const bool *)field ? "true" : "false");
        break;
    case SETTING_CHOICE: {
        const char *words = row->unit;
        for (int i = *(const int *)field; i > 0; i--)
            words += strcspn(words, "|") + 1;
        n = snprintf(out, cap, "%.*s", (int)strcspn(words, "|"), words);
        break;
    }
    case SETTING_NUMBER:
    case SETTING_SECONDS:
        n = format_thousandths(*(const double *)field, out, cap);
        break;
    case SETTING_AUTO_INT:
    case SETTING_INT: {
        long long v = (long long)*(const int64_t *)field;
        bool is_auto = row->kind == SETTING_AUTO_INT && v == auto_value(row);
        n = is_auto ? snprintf(out, cap, "auto") : snprintf(out, cap, "%lld", v);
        break;
    }
    }
    return n >= 0 && (size_t)n < cap ? 0 : -1;
}

/* A bound with the largest suffix that divides it: 1048576 -> "1m", as a user would write it. */
static void format_bound(const struct setting *row, double bound, char *out, size_t cap) {
    static const char suffixes[] = "kmg";
    if (row->kind == SETTING_SECONDS || row->kind == SETTING_NUMBER) {
        format_thousandths(bound, out, cap);
        return;
    }
    int64_t v = (int64_t)bound;
    int shifts = 0;
    while (strcmp(row->unit, "bytes") == 0 && shifts < 3 && v >= 1024 && v % 1024 == 0) {
        v /= 1024;
        shifts++;
    }
    snprintf(out, cap, "%lld%.1s", (long long)v, shifts > 0 ? &suffixes[shifts - 1] : "");
}

void setting_range(const struct setting *row, char *out, size_t cap) {
    char min[32], max[32];
    switch (row->kind) {
    case SETTING_BOOL:
        snprintf(out, cap, "true or false");
        return;
    case SETTING_CHOICE:
        snprintf(out, cap, "%s", row->unit);
        return;
    case SETTING_INT:
    case SETTING_AUTO_INT:
    case SETTING_NUMBER:
    case SETTING_SECONDS:
        format_bound(row, row->min, min, sizeof(min));
        format_bound(row, row->max, max, sizeof(max));
        snprintf(out, cap, "%s%s to %s %s", row->kind == SETTING_AUTO_INT ? "auto or " : "", min,
                 max, row->unit);
        return;
    case SETTING_TEXT:
    case SETTING_PATH:
        snprintf(out, cap, "%s", row->unit);
        return;
    }
}
