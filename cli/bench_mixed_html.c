/* bench_mixed_html.c - the page: verdicts first, then plots, then the whole table (see
 * bench_mixed_report.h). */
#include "cli/bench_mixed_report.h"
#include "cli/bench_plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    "body{font:14px sans-serif;margin:2em auto;max-width:980px;color:#222}"
    "table{border-collapse:collapse;margin:.6em 0}td,th{border:1px solid #ccc;padding:3px 8px;"
    "text-align:left}.held{color:#080}.MISSED{color:#b00;font-weight:bold}.not{color:#777}"
    "pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:12px}svg{margin:.3em}";

static void checks(struct buf *out, const struct mixed_run *r) {
    for (int promise = 1; promise >= 0; promise--) {
        buf_addf(out, "<table><tr><th colspan='2'>%s</th><th>figure</th></tr>\n",
                 promise ? "Promises" : "Conditions: one missed, and the run proves nothing");
        for (uint32_t i = 0; i < r->n_checks; i++) {
            const struct mixed_check *c = &r->checks[i];
            if (c->promise != (promise == 1))
                continue;
            buf_addf(out, "<tr><td class='%s'>%s</td><td>", mixed_state_word(c->state),
                     mixed_state_word(c->state));
            plot_text(out, c->name);
            buf_adds(out, "</td><td>");
            plot_text(out, c->text);
            buf_adds(out, "</td></tr>\n");
        }
        buf_adds(out, "</table>\n");
    }
}

/* Share of waits not above x, up to the 99.5th hundredth: the last ones would flatten the rest. */
static void distribution(struct buf *out, const struct mixed_run *r, enum mixed_what what) {
    double share[MIXED_CURVE];
    char title[80];
    for (int i = 0; i < MIXED_CURVE; i++)
        share[i] = (double)i;
    const struct plot_line lines[2] = {
        {"alone", "#06c", r->curves[what][0], share, MIXED_CURVE - 1, false},
        {"beside batch", "#c60", r->curves[what][1], share, MIXED_CURVE - 1, false}};
    snprintf(title, sizeof(title), "%s: %% of %s not above x", mixed_what_names[what],
             what == MIXED_GAP ? "gaps" : "requests");
    plot_lines(out, title, "ms", "%", lines, 2);
}

static void ratios(struct buf *out, const struct mixed *m, const struct mixed_run *r) {
    static const int kinds[] = {STATS_P50, STATS_MEAN, STATS_P90, STATS_P99};
    struct plot_ratio rows[9];
    char names[9][24];
    uint32_t n = 0;
    bool virtual = m->busy_by == MIXED_BUSY_STEPS;
    for (int what = MIXED_TTFT; what <= MIXED_GAP; what++)
        for (int k = 0; k < 4; k++, n++) {
            snprintf(names[n], sizeof(names[n]), "%s %s", mixed_what_names[what],
                     mixed_kind_names[kinds[k]]);
            rows[n] =
                (struct plot_ratio){names[n], r->ratios[what][kinds[k]], virtual ? 1.02 : 1.05};
        }
    rows[n++] = (struct plot_ratio){"harvest", r->harvest, virtual ? 0.98 : 0.95};
    plot_ratios(out, "mixed / alone, 95 % interval; orange: the bar", rows, n);
}

static void run(struct buf *out, const struct mixed *m, uint32_t i) {
    const struct mixed_run *r = &m->runs[i];
    const char *names[MIXED_ARMS];
    double batch[MIXED_ARMS];
    buf_addf(out, "<h2>Run %u of %u: %s, promises <span class='%s'>%s</span></h2>\n", i + 1,
             m->n_runs, r->valid ? "valid" : "<span class='MISSED'>VOID</span>",
             r->held ? "held" : "MISSED", r->held ? "held" : "MISSED");
    checks(out, r);
    ratios(out, m, r);
    distribution(out, r, MIXED_TTFT);
    distribution(out, r, MIXED_GAP);
    distribution(out, r, MIXED_E2E);
    for (int k = 0; k < MIXED_ARMS; k++) {
        names[k] = r->rows[k].name;
        batch[k] = r->rows[k].batch_tok_s;
    }
    plot_bars(out, "batch tokens/s by arm, in the order they ran", "", names, batch, MIXED_ARMS);
}

static int table(struct buf *out, const struct mixed *m) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f == NULL)
        return -1;
    mixed_report_table(m, f);
    if (fclose(f) != 0)
        return -1;
    buf_adds(out, "<h2>All figures</h2>\n<pre>");
    for (char *line = text; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        plot_text(out, line);
        buf_addc(out, '\n');
        line = end != NULL ? end + 1 : NULL;
    }
    free(text); /* the library's block */
    buf_adds(out, "</pre>\n");
    return 0;
}

int mixed_report_html(struct buf *out, const struct mixed *m) {
    char text[600];
    buf_addf(out,
             "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>sluice bench "
             "mixed</title><style>%s</style></head><body>\n<h1>Chat beside a full batch</h1>\n<p>",
             style);
    mixed_heading(m, text, sizeof(text));
    plot_text(out, text);
    buf_adds(out, "</p>\n<p>");
    mixed_scope(m, text, sizeof(text));
    plot_text(out, text);
    buf_adds(out,
             "</p>\n<p>Arms in the order B A M M A B: batch alone, real-time alone, both. Every "
             "real-time arm replays one list of arrivals with fresh prompts. Mixed / alone at 1 "
             "means that chat users feel nothing of the batch; harvest is what the batch made of "
             "the time that chat left.</p>\n");
    for (uint32_t i = 0; i < m->n_runs; i++)
        run(out, m, i);
    int rc = table(out, m);
    buf_adds(out, "</body></html>\n");
    return rc != 0 || out->bad ? -1 : 0;
}
