/* usage_text.c - see usage_text.h. */
#include "config/usage_text.h"

#include "base/hash.h"
#include "base/mem.h"
#include "config/file_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400
#define END_BYTES 21 /* "end ", 16 hex digits, line feed */
#define COLUMNS_MAX 64

struct column { const char *name; size_t offset; };
static const struct column columns[] = {
#define USAGE_COLUMN(field, column, meaning) {column, offsetof(struct usage_counts, field)},
    USAGE_FIELDS(USAGE_COLUMN)
#undef USAGE_COLUMN
};
#define COLUMNS (sizeof columns / sizeof columns[0])

/* ---- counts */

static uint64_t sum(uint64_t a, uint64_t b) {
    return a + b >= a ? a + b : UINT64_MAX;
}

void usage_counts_add(struct usage_counts *to, const struct usage_counts *n) {
#define USAGE_SUM(field, column, meaning) to->field = sum(to->field, n->field);
    USAGE_FIELDS(USAGE_SUM)
#undef USAGE_SUM
}

uint64_t usage_useful(const struct usage_counts *c) {
    return sum(c->prompt, c->output);
}

uint64_t usage_wasted(const struct usage_counts *c) {
    return sum(sum(c->wasted_again, c->wasted_recomputed),
               sum(c->wasted_dropped, c->wasted_surplus));
}

bool usage_name_ok(const char *name) {
    return file_word_ok(name, TENANT_NAME_BYTES - 1) || strcmp(name, USAGE_ENGINE) == 0 ||
           strcmp(name, USAGE_OTHER) == 0;
}

/* ---- days */

int32_t usage_day_of(int64_t wall_s) {
    int64_t day = wall_s >= 0 ? wall_s / DAY_S : -((DAY_S - 1 - wall_s) / DAY_S);
    return (int32_t)day;
}

static bool leap(int32_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int32_t month_days(int32_t year, int32_t month) {
    static const int8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && leap(year));
}

/* Days before the first of January of `year`, counted from that of year 1. */
static int32_t before_year(int32_t year) {
    int32_t y = year - 1;
    return y * 365 + y / 4 - y / 100 + y / 400;
}

#define DAYS_TO_1970 719162

void usage_day_text(char out[USAGE_DAY_BYTES], int32_t day) {
    int32_t left = day + DAYS_TO_1970, year, month = 1;
    if (left < 0)
        left = 0;
    year = left / 366 + 1; /* never too late: at most a few years too early */
    while (year < 9999 && before_year(year + 1) <= left)
        year++;
    left -= before_year(year);
    while (month < 12 && left >= month_days(year, month))
        left -= month_days(year, month++);
    if (left > 30)
        left = 30; /* after 9999: its last day */
    snprintf(out, USAGE_DAY_BYTES, "%04u-%02u-%02u", (unsigned)year % 10000, (unsigned)month % 100,
             (unsigned)(left + 1) % 100);
}

bool usage_day_parse(const char *text, int32_t *day) {
    int32_t part[3] = {0};
    static const int8_t digits[] = {4, 2, 2};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < digits[i]; k++, text++) {
            if (*text < '0' || *text > '9')
                return false;
            part[i] = part[i] * 10 + (*text - '0');
        }
        if (*text++ != (i < 2 ? '-' : '\0'))
            return false;
    }
    if (part[0] < 1 || part[1] < 1 || part[1] > 12 || part[2] < 1 ||
        part[2] > month_days(part[0], part[1]))
        return false;
    *day = before_year(part[0]) - DAYS_TO_1970 + part[2] - 1;
    for (int32_t m = 1; m < part[1]; m++)
        *day += month_days(part[0], m);
    return true;
}

/* ---- out */

void usage_text_print(struct buf *out, int32_t day, uint64_t seq, const struct usage_row *rows,
                      uint32_t n) {
    char date[USAGE_DAY_BYTES];
    size_t start = out->len;
    usage_day_text(date, day);
    buf_addf(out, "sluice-usage 1 %s seq %" PRIu64 " rows %" PRIu32 "\ntenant", date, seq, n);
    for (size_t c = 0; c < COLUMNS; c++)
        buf_addf(out, "\t%s", columns[c].name);
    buf_addc(out, '\n');
    for (uint32_t i = 0; i < n; i++) {
        buf_adds(out, rows[i].tenant);
#define USAGE_PRINT(field, column, meaning) buf_addf(out, "\t%" PRIu64, rows[i].counts.field);
        USAGE_FIELDS(USAGE_PRINT)
#undef USAGE_PRINT
        buf_addc(out, '\n');
    }
    if (!out->bad)
        buf_addf(out, "end %016" PRIx64 "\n", hash64(out->p + start, out->len - start, 0));
}

/* ---- in */

struct reader {
    char *at;                /* the rest, NUL-terminated */
    int column[COLUMNS_MAX]; /* of the file: index into columns, -1 = unknown */
    int n_columns;
};

static bool whole(const char *text, size_t n) {
    char end[END_BYTES + 1];
    if (n < END_BYTES || n > USAGE_TEXT_BYTES || memchr(text, '\0', n) != NULL)
        return false;
    snprintf(end, sizeof end, "end %016" PRIx64 "\n", hash64(text, n - END_BYTES, 0));
    return memcmp(end, text + n - END_BYTES, END_BYTES) == 0;
}

/* Cuts the next piece off at `stop` (which must come before the line's end, or be it); NULL = none. */
static char *piece(struct reader *r, char stop) {
    char *start = r->at;
    size_t n = strcspn(start, stop == '\t' ? "\t\n" : "\n");
    if (start[n] != stop)
        return NULL;
    start[n] = '\0';
    r->at = start + n + 1;
    return start;
}

static bool number(const char *text, uint64_t *out) {
    size_t n = strspn(text, "0123456789");
    uint64_t v = 0;
    if (n == 0 || text[n] != '\0')
        return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

static bool read_head(struct reader *r, struct usage_day *out) {
    char date[USAGE_DAY_BYTES];
    int end = 0;
    char *line = piece(r, '\n');
    unsigned long long seq;
    unsigned rows;
    if (line == NULL || sscanf(line, "sluice-usage 1 %10[0-9-] seq %20llu rows %9u%n", date, &seq,
                               &rows, &end) != 3 || line[end] != '\0')
        return false;
    out->seq = seq;
    out->n = rows;
    return rows <= USAGE_ROWS_MAX && usage_day_parse(date, &out->day);
}

static int column_of(const char *name) {
    for (size_t i = 0; i < COLUMNS; i++)
        if (strcmp(columns[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool read_columns(struct reader *r) {
    char *line = piece(r, '\n');
    bool seen[COLUMNS] = {false};
    if (line == NULL || strncmp(line, "tenant", 6) != 0 || (line[6] != '\t' && line[6] != '\0'))
        return false;
    for (char *at = line + 6; *at == '\t';) {
        size_t n = strcspn(++at, "\t");
        char end = at[n];
        at[n] = '\0';
        int c = column_of(at);
        if (r->n_columns == COLUMNS_MAX || (c >= 0 && seen[c]))
            return false;
        if (c >= 0)
            seen[c] = true;
        r->column[r->n_columns++] = c;
        at[n] = end;
        at += n;
    }
    return true;
}

static bool read_row(struct reader *r, struct usage_row *row) {
    char *name = piece(r, r->n_columns > 0 ? '\t' : '\n');
    if (name == NULL || !usage_name_ok(name))
        return false;
    snprintf(row->tenant, sizeof row->tenant, "%s", name);
    for (int i = 0; i < r->n_columns; i++) {
        uint64_t v;
        char *text = piece(r, i + 1 < r->n_columns ? '\t' : '\n');
        if (text == NULL || !number(text, &v))
            return false;
        if (r->column[i] >= 0)
            memcpy((char *)&row->counts + columns[r->column[i]].offset, &v, sizeof v);
    }
    return true;
}

static int bad(struct usage_day *out, struct err *e, const char *what) {
    usage_text_deinit(out);
    return err_set(e, ERR_BAD_FILE, "%s", what);
}

static int read_all(struct reader *r, struct usage_day *out, struct err *e) {
    if (!read_head(r, out) || !read_columns(r)) {
        out->rows = NULL;
        return bad(out, e, "the head of the file is not that of a usage file of version 1");
    }
    out->rows = mem_array(out->n, sizeof *out->rows);
    if (out->rows == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < out->n; i++)
        if (!read_row(r, &out->rows[i]))
            return bad(out, e, "a row of the file is malformed");
    if (strncmp(r->at, "end ", 4) != 0)
        return bad(out, e, "the file has more rows than its head says");
    return 0;
}

int usage_text_parse(struct usage_day *out, const char *text, size_t n_bytes, struct err *e) {
    memset(out, 0, sizeof *out);
    if (!whole(text, n_bytes))
        return err_set(e, ERR_BAD_FILE, "the file is cut or damaged");
    char *copy = mem_alloc(n_bytes + 1);
    if (copy == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    struct reader r = {.at = copy};
    int rc = read_all(&r, out, e);
    mem_free(copy);
    return rc;
}

void usage_text_deinit(struct usage_day *d) {
    mem_free(d->rows);
    memset(d, 0, sizeof *d);
}
