/* sim_trace.c - reading a trace; sim_scale.c has what is done to one that was read. */
#include "cli/sim_trace.h"

#include "base/hash.h"
#include "base/mem.h"
#include "cli/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum column { COL_AT, COL_IN, COL_OUT, COL_CLASS, COL_TENANT, COL_BLOCK, COL_IDS, COLUMNS };

static const char *const names[COLUMNS] = {"arrival_ms", "input_tokens", "output_tokens", "class",
                                           "tenant",     "block_tokens", "prefix_ids"};

#define FIELDS_MAX 32

struct text {
    const char *p;
    size_t n;
};

struct reader {
    struct sim_trace *t;
    const struct sim_trace_options *o;
    int place[FIELDS_MAX]; /* of a field: its column, -1 = another */
    int fields;            /* 0 = no header yet */
    uint64_t line;
    struct err *e;
};

static int bad(struct reader *r, const char *what, struct text v) {
    return err_set(r->e, ERR_BAD_FILE, "line %llu: %s: '%.*s'", (unsigned long long)r->line,
                   what, (int)(v.n < 40 ? v.n : 40), v.p);
}

/* Splits at commas; more than FIELDS_MAX: -1. */
static int split(const struct line *l, struct text *f) {
    int n = 0;
    const char *p = l->p, *end = l->p + l->n;
    for (;;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        if (n == FIELDS_MAX)
            return -1;
        f[n++] = (struct text){p, (size_t)((comma != NULL ? comma : end) - p)};
        if (comma == NULL)
            return n;
        p = comma + 1;
    }
}

static bool number(struct text v, uint64_t max, uint64_t *out) {
    uint64_t n = 0;
    if (v.n == 0 || v.n > 19)
        return false;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(v.p[i] - '0');
    }
    *out = n;
    return n <= max;
}

/* Milliseconds, with at most six decimals, as ns. */
static bool milliseconds(struct text v, uint64_t *ns) {
    const char *dot = v.n > 0 ? memchr(v.p, '.', v.n) : NULL;
    struct text whole = {v.p, dot != NULL ? (size_t)(dot - v.p) : v.n};
    uint64_t ms, part = 0;
    if (!number(whole, SIM_TRACE_MS_MAX, &ms))
        return false;
    if (dot != NULL) {
        struct text rest = {dot + 1, v.n - whole.n - 1};
        if (rest.n > 6 || !number(rest, 999999, &part))
            return false;
        for (size_t i = rest.n; i < 6; i++)
            part *= 10;
    }
    *ns = ms * 1000000u + part;
    return true;
}

static int take_header(struct reader *r, const struct text *f, int n) {
    bool seen[COLUMNS] = {false};
    for (int i = 0; i < n; i++) {
        r->place[i] = -1;
        for (int c = 0; c < COLUMNS; c++) {
            if (f[i].n != strlen(names[c]) || memcmp(f[i].p, names[c], f[i].n) != 0)
                continue;
            if (seen[c])
                return bad(r, "a column comes twice", f[i]);
            seen[c] = true;
            r->place[i] = c;
        }
    }
    for (int c = COL_AT; c <= COL_OUT; c++)
        if (!seen[c])
            return err_set(r->e, ERR_BAD_FILE, "line %llu: the header has no column %s",
                           (unsigned long long)r->line, names[c]);
    r->fields = n;
    return 0;
}

static int take_class(struct reader *r, struct text v, struct sim_trace_row *row) {
    char name[sizeof(r->o->classes->rows[0].name)];
    row->cls = r->o->unknown;
    if (v.n == 0)
        return 0;
    int k = -1;
    if (v.n < sizeof(name)) {
        memcpy(name, v.p, v.n);
        name[v.n] = '\0';
        k = class_table_find(r->o->classes, name);
    }
    if (k < 0)
        return bad(r, "no such class", v);
    row->cls = (uint8_t)k;
    return 0;
}

static int take_tenant(struct reader *r, struct text v, struct sim_trace_row *row) {
    struct sim_trace *t = r->t;
    if (v.n == 0)
        v = (struct text){"-", 1};
    if (v.n >= SIM_TRACE_NAME_MAX)
        return bad(r, "a tenant's name is too long", v);
    for (size_t i = 0; i < v.n; i++)
        if ((unsigned char)v.p[i] < 0x20 || v.p[i] == 0x7f)
            return bad(r, "a control character in a tenant's name", v);
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        row->tenant = (uint16_t)i;
        if (memcmp(t->tenants[i], v.p, v.n) == 0 && t->tenants[i][v.n] == '\0')
            return 0;
    }
    if (t->n_tenants == SIM_TRACE_TENANTS_MAX)
        return bad(r, "more than 1024 tenants", v);
    row->tenant = (uint16_t)t->n_tenants;
    memcpy(t->tenants[t->n_tenants++], v.p, v.n);
    return 0;
}

static int add_range(struct reader *r, uint64_t from, uint64_t to) {
    struct sim_trace *t = r->t;
    if (t->n_ranges == t->ranges_cap) {
        uint32_t cap = t->ranges_cap == 0 ? 4096 : 2 * t->ranges_cap;
        struct sim_range *p =
            cap > UINT32_MAX / 4 ? NULL : mem_realloc(t->ranges, cap * sizeof(*t->ranges));
        if (p == NULL)
            return err_set(r->e, ERR_NO_MEMORY, "out of memory for prefix ids");
        t->ranges = p;
        t->ranges_cap = cap;
    }
    t->ranges[t->n_ranges++] = (struct sim_range){from, to};
    return 0;
}

/* "7 9-12": one id a block of the prompt. */
static int take_ids(struct reader *r, struct text v, struct sim_trace_row *row) {
    uint64_t blocks = (row->n_prompt + row->block_tokens - 1) / row->block_tokens, n = 0;
    const char *p = v.p, *end = v.p + v.n;
    row->range_at = r->t->n_ranges;
    while (p < end) {
        const char *space = memchr(p, ' ', (size_t)(end - p));
        const char *stop = space != NULL ? space : end, *dash = memchr(p, '-', (size_t)(stop - p));
        uint64_t from, to;
        if (!number((struct text){p, (size_t)((dash != NULL ? dash : stop) - p)}, 1ull << 39, &from))
            return bad(r, "no prefix id", (struct text){p, (size_t)(stop - p)});
        to = from;
        if (dash != NULL &&
            (!number((struct text){dash + 1, (size_t)(stop - dash - 1)}, 1ull << 39, &to) ||
             to < from))
            return bad(r, "no range of prefix ids", (struct text){p, (size_t)(stop - p)});
        n += to - from + 1;
        if (n > blocks)
            break;
        if (add_range(r, from, to) != 0)
            return -1;
        p = stop < end ? stop + 1 : end;
    }
    row->n_ranges = r->t->n_ranges - row->range_at;
    if (n != blocks)
        return bad(r, "prefix_ids does not name every block of the input once", v);
    return 0;
}

static int take_numbers(struct reader *r, const struct text *v, struct sim_trace_row *row) {
    uint64_t at_ns, in, out, block = 0;
    if (!milliseconds(v[COL_AT], &at_ns))
        return bad(r, "arrival_ms is no number of milliseconds within a year", v[COL_AT]);
    if (!number(v[COL_IN], SIM_TRACE_TOKENS_MAX, &in) || in == 0)
        return bad(r, "input_tokens is no whole number from 1 to 10000000", v[COL_IN]);
    if (!number(v[COL_OUT], SIM_TRACE_TOKENS_MAX, &out) || out == 0)
        return bad(r, "output_tokens is no whole number from 1 to 10000000", v[COL_OUT]);
    if (v[COL_BLOCK].n != 0 && !number(v[COL_BLOCK], SIM_TRACE_TOKENS_MAX, &block))
        return bad(r, "block_tokens is no whole number up to 10000000", v[COL_BLOCK]);
    row->at_ns = at_ns;
    row->n_prompt = (uint32_t)in;
    row->n_out = (uint32_t)out;
    row->block_tokens = (uint32_t)block;
    if (r->t->n > 0 && row->at_ns < r->t->rows[r->t->n - 1].at_ns)
        return bad(r, "it came before the line before it; rows are sorted by arrival_ms", v[COL_AT]);
    return 0;
}

static int add_row(struct reader *r, const struct sim_trace_row *row) {
    struct sim_trace *t = r->t;
    if (t->n == SIM_TRACE_ROWS_MAX)
        return err_set(r->e, ERR_BAD_FILE, "line %llu: more than %u requests",
                       (unsigned long long)r->line, SIM_TRACE_ROWS_MAX);
    if (t->n == t->cap) {
        uint32_t cap = t->cap == 0 ? 4096 : 2 * t->cap;
        struct sim_trace_row *p = mem_realloc(t->rows, cap * sizeof(*p));
        if (p == NULL)
            return err_set(r->e, ERR_NO_MEMORY, "out of memory for %u requests", cap);
        t->rows = p;
        t->cap = cap;
    }
    t->rows[t->n++] = *row;
    return 0;
}

/* 1 = a row that is too late, so the end. */
static int take_row(struct reader *r, const struct text *f, int n) {
    struct text v[COLUMNS];
    struct sim_trace_row row = {0};
    memset(v, 0, sizeof(v));
    if (n != r->fields)
        return err_set(r->e, ERR_BAD_FILE, "line %llu: %d fields, the header has %d",
                       (unsigned long long)r->line, n, r->fields);
    for (int i = 0; i < n; i++)
        if (r->place[i] >= 0)
            v[r->place[i]] = f[i];
    if (take_numbers(r, v, &row) != 0)
        return -1;
    if (r->o->duration_ns != 0 && row.at_ns >= r->o->duration_ns)
        return 1;
    if (take_class(r, v[COL_CLASS], &row) != 0 || take_tenant(r, v[COL_TENANT], &row) != 0)
        return -1;
    if (row.block_tokens != 0 && take_ids(r, v[COL_IDS], &row) != 0)
        return -1;
    return add_row(r, &row);
}

static int take_line(struct reader *r, const struct line *l) {
    struct text f[FIELDS_MAX];
    r->line = l->number;
    if (l->too_long)
        return err_set(r->e, ERR_BAD_FILE, "line %llu: longer than 1 MiB",
                       (unsigned long long)r->line);
    if (l->n == 0 || l->p[0] == '#')
        return 0;
    if (memchr(l->p, '\0', l->n) != NULL)
        return err_set(r->e, ERR_BAD_FILE, "line %llu: a NUL byte, this is no text",
                       (unsigned long long)r->line);
    int n = split(l, f);
    if (n < 0)
        return err_set(r->e, ERR_BAD_FILE, "line %llu: more than %d fields",
                       (unsigned long long)r->line, FIELDS_MAX);
    return r->fields == 0 ? take_header(r, f, n) : take_row(r, f, n);
}

static int read_all(struct reader *r, int fd) {
    struct line_reader lines;
    struct line l;
    int rc = 0;
    line_reader_init(&lines, fd, SIM_TRACE_LINE_MAX);
    while (rc == 0 && (r->o->limit == 0 || r->t->n < r->o->limit)) {
        int got = line_reader_next(&lines, &l, r->e);
        if (got <= 0) {
            rc = got;
            break;
        }
        rc = take_line(r, &l);
    }
    line_reader_deinit(&lines);
    if (rc < 0)
        return -1;
    if (r->fields == 0)
        return err_set(r->e, ERR_BAD_FILE, "no header: its first line should be %s,%s,%s,...",
                       names[0], names[1], names[2]);
    return r->t->n > 0 ? 0 : err_set(r->e, ERR_BAD_FILE, "no requests in it");
}

int sim_trace_read(struct sim_trace *t, const char *path, const struct sim_trace_options *o,
                   struct err *e) {
    struct reader r = {.t = t, .o = o, .e = e};
    memset(t, 0, sizeof(*t));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    t->tenants = mem_array(SIM_TRACE_TENANTS_MAX, sizeof(*t->tenants));
    int rc = t->tenants == NULL ? err_set(e, ERR_NO_MEMORY, "out of memory") : read_all(&r, fd);
    close(fd);
    if (rc != 0)
        sim_trace_free(t);
    return rc;
}

uint32_t sim_trace_keep(struct sim_trace *t, uint8_t cls) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->rows[i].cls == cls)
            t->rows[n++] = t->rows[i];
    t->n = n;
    return n;
}

void sim_trace_free(struct sim_trace *t) {
    mem_free(t->rows);
    mem_free(t->ranges);
    mem_free(t->tenants);
    memset(t, 0, sizeof(*t));
}
