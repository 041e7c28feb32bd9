/* usage_report.c - see usage_report.h. */
#include "cli/usage_report.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* All folders' rows of one day. */
struct day_rows { struct usage_row *rows; uint32_t n, cap; };

static int add_row(struct day_rows *d, const struct usage_row *row) {
    if (d->n == d->cap) {
        uint32_t cap = d->cap > 0 ? d->cap * 2 : 64;
        struct usage_row *grown = mem_realloc(d->rows, cap * sizeof(*grown));
        if (grown == NULL)
            return -1;
        d->rows = grown;
        d->cap = cap;
    }
    d->rows[d->n++] = *row;
    return 0;
}

static int by_tenant(const void *a, const void *b) {
    return strcmp(((const struct usage_row *)a)->tenant, ((const struct usage_row *)b)->tenant);
}

static void merge(struct day_rows *d) {
    uint32_t n = 0;
    if (d->n > 0)
        qsort(d->rows, d->n, sizeof(*d->rows), by_tenant);
    for (uint32_t i = 0; i < d->n; i++) {
        if (n > 0 && by_tenant(&d->rows[n - 1], &d->rows[i]) == 0)
            usage_counts_add(&d->rows[n - 1].counts, &d->rows[i].counts);
        else
            d->rows[n++] = d->rows[i];
    }
    d->n = n;
}

/* ---- one row in each form; names and columns hold no character that a form would have to quote */

static const char *const columns[] = {
#define USAGE_NAME(field, column, meaning) column,
    USAGE_FIELDS(USAGE_NAME)
#undef USAGE_NAME
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

static void values(const struct usage_counts *c, uint64_t out[COLUMNS]) {
    size_t n = 0;
#define USAGE_VALUE(field, column, meaning) out[n++] = c->field;
    USAGE_FIELDS(USAGE_VALUE)
#undef USAGE_VALUE
}

static void print_csv(FILE *f, const char *date, const struct usage_row *row) {
    uint64_t v[COLUMNS];
    values(&row->counts, v);
    fprintf(f, "%s,%s", date, row->tenant);
    for (size_t i = 0; i < COLUMNS; i++)
        fprintf(f, ",%" PRIu64, v[i]);
    fputc('\n', f);
}

static void print_members(FILE *f, const struct usage_counts *c) {
    uint64_t v[COLUMNS];
    values(c, v);
    for (size_t i = 0; i < COLUMNS; i++)
        fprintf(f, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", columns[i], v[i]);
    fprintf(f, ",\"useful\":%" PRIu64 ",\"wasted\":%" PRIu64, usage_useful(c), usage_wasted(c));
}

static void print_json(struct usage_report *r, const char *date, const struct usage_row *row) {
    fprintf(r->out, "%s{\"day\":\"%s\",\"tenant\":\"%s\",", r->n_rows > 0 ? "," : "", date,
            row->tenant);
    print_members(r->out, &row->counts);
    fputc('}', r->out);
}

static void print_line(FILE *f, const char *date, const char *name, const struct usage_counts *c) {
    fprintf(f, "%-10s  %-20s %9" PRIu64 " %8" PRIu64 " %12" PRIu64 " %12" PRIu64 " %12" PRIu64
            " %11" PRIu64 "\n", date, name, c->requests, c->refused_limits + c->refused_server,
            c->prompt, c->cached, c->output, usage_wasted(c));
}

static void print_row(struct usage_report *r, const char *date, const struct usage_row *row) {
    if (r->form == USAGE_CSV)
        print_csv(r->out, date, row);
    else if (r->form == USAGE_JSON)
        print_json(r, date, row);
    else if (strcmp(row->tenant, USAGE_ENGINE) != 0)
        print_line(r->out, date, row->tenant, &row->counts);
    else
        return; /* the table's last lines speak of it */
    r->n_rows++;
}

/* ---- days */

static int load_day(struct usage_report *r, int32_t day, struct day_rows *d, struct err *e) {
    for (int i = 0; i < r->n_folders; i++) {
        struct usage_day one;
        struct err why;
        int bad = 0;
        if (usage_file_load(&one, r->folders[i], day, &why) != 0) {
            if (why.code != ERR_NOT_FOUND) {
                fprintf(r->warn, "sluice usage: %s; this day is left out\n", why.msg);
                r->n_bad++;
            }
            continue;
        }
        for (uint32_t k = 0; k < one.n && bad == 0; k++)
            bad = add_row(d, &one.rows[k]);
        usage_text_deinit(&one);
        if (bad != 0)
            return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    merge(d);
    return 0;
}

static int report_day(struct usage_report *r, int32_t day, struct err *e) {
    struct day_rows d = {0};
    char date[USAGE_DAY_BYTES];
    int rc = load_day(r, day, &d, e);
    usage_day_text(date, day);
    for (uint32_t i = 0; i < d.n && rc == 0; i++) {
        bool engine = strcmp(d.rows[i].tenant, USAGE_ENGINE) == 0;
        if (engine && r->n_folders == 1 && r->tenant == NULL) {
            usage_counts_add(&r->engine, &d.rows[i].counts);
            r->has_engine = true;
        }
        if (engine ? !r->has_engine : r->tenant != NULL && strcmp(r->tenant, d.rows[i].tenant) != 0)
            continue;
        if (!engine)
            usage_counts_add(&r->total, &d.rows[i].counts);
        print_row(r, date, &d.rows[i]);
    }
    mem_free(d.rows);
    return rc;
}

static void head(const struct usage_report *r) {
    char from[USAGE_DAY_BYTES], to[USAGE_DAY_BYTES];
    usage_day_text(from, r->from);
    usage_day_text(to, r->to);
    if (r->form == USAGE_JSON) {
        fprintf(r->out, "{\"from\":\"%s\",\"to\":\"%s\",\"rows\":[", from, to);
    } else if (r->form == USAGE_CSV) {
        fprintf(r->out, "day,tenant");
        for (size_t i = 0; i < COLUMNS; i++)
            fprintf(r->out, ",%s", columns[i]);
        fputc('\n', r->out);
    } else {
        fprintf(r->out, "%-10s  %-20s %9s %8s %12s %12s %12s %11s\n", "day", "tenant", "requests",
                "refused", "prompt", "cached", "output", "wasted");
    }
}

static int64_t difference(const struct usage_report *r) {
    const struct usage_counts *t = &r->total;
    return (int64_t)(usage_useful(&r->engine) - usage_useful(t) - t->wasted_again -
                     t->wasted_surplus);
}

static void foot(const struct usage_report *r) {
    if (r->form == USAGE_JSON) {
        fprintf(r->out, "],\"total\":{");
        print_members(r->out, &r->total);
        fprintf(r->out, "}");
        if (r->has_engine) {
            fprintf(r->out, ",\"engine\":{");
            print_members(r->out, &r->engine);
            fprintf(r->out, ",\"difference\":%" PRId64 "}", difference(r));
        }
        fprintf(r->out, "}\n");
    } else if (r->form == USAGE_TABLE) {
        print_line(r->out, "", "total", &r->total);
        fprintf(r->out, "useful (prompt + output): %" PRIu64 " tokens\n", usage_useful(&r->total));
        if (r->has_engine)
            fprintf(r->out, "workers counted %" PRIu64 " useful tokens (difference %" PRId64
                    "), %" PRIu64 " computed again, %" PRIu64 " dropped\n",
                    usage_useful(&r->engine), difference(r), r->engine.wasted_recomputed,
                    r->engine.wasted_dropped);
    }
}

/* The days that any folder has; a folder that has none at all is an error. */
static int find_days(const struct usage_report *r, int32_t *days, struct err *e) {
    int n = 0;
    for (int i = 0; i < r->n_folders; i++) {
        int more = usage_file_days(r->folders[i], r->from, r->to, days + n, USAGE_DAYS_MAX + 1, e);
        if (more < 0)
            return -1;
        n += more;
    }
    return n;
}

static int by_day(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int usage_report_run(struct usage_report *r, struct err *e) {
    int32_t *days = mem_array((size_t)r->n_folders * (USAGE_DAYS_MAX + 1), sizeof(*days));
    if (days == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    int n = find_days(r, days, e), rc = n < 0 ? -1 : 0;
    if (rc == 0)
        head(r);
    if (n > 0)
        qsort(days, (size_t)n, sizeof(*days), by_day);
    for (int i = 0; i < n && rc == 0; i++)
        if (i == 0 || days[i] != days[i - 1])
            rc = report_day(r, days[i], e);
    if (rc == 0)
        foot(r);
    mem_free(days);
    return rc;
}
