/* command_usage.c - `sluice usage`: what each tenant used, by UTC day, from the gateway's state folder. */
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/usage_report.h"
#include "config/config.h"

#include <string.h>
#include <time.h>

#define DAYS_USUAL 31

static struct {
    const char *tenant, *from, *to;
    bool csv, json;
} o;

static const struct flag flags[] = {
    {"tenant", FLAG_TEXT, &o.tenant, 0, 0, "NAME", "only this tenant (default: all)"},
    {"from", FLAG_TEXT, &o.from, 0, 0, "DAY", "first UTC day, as 2026-12-01 (default: 30 before the last)"},
    {"to", FLAG_TEXT, &o.to, 0, 0, "DAY", "last UTC day (default: today)"},
    {"csv", FLAG_BOOL, &o.csv, 0, 0, "", "every column, one line a tenant and day"},
    {"json", FLAG_BOOL, &o.json, 0, 0, "", "one JSON object, with sums"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f,
            "Usage: sluice usage [FLAGS] [STATE-FOLDER ...]\n\n"
            "Prints what each tenant used a day: requests, refusals, tokens that were useful, taken "
            "from the cache,\nor wasted. Reads the state folder of a gateway (default: that of "
            "`sluice up`); of several folders, one a\ngateway, the sums are printed. A running "
            "gateway writes its counts every few seconds.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nColumns of --csv and --json:\n");
#define USAGE_HELP(field, column, meaning) fprintf(f, "  %-18s%s\n", column, meaning);
    USAGE_FIELDS(USAGE_HELP)
#undef USAGE_HELP
    fprintf(f, "The tenant '%s' is what the workers counted themselves; '%s' came when there were "
               "too many tenants.\n"
               "\nExamples:\n"
               "  sluice usage\n"
               "  sluice usage --tenant alice --from 2026-12-01 --csv > alice.csv\n"
               "\nExit codes: 0 printed; 1 usage, or there is nothing to read; 2 a day's file is "
               "damaged and left out.\n", USAGE_ENGINE, USAGE_OTHER);
}

static int take_days(struct usage_report *r, struct err *e) {
    r->to = usage_day_of((int64_t)time(NULL));
    if (o.to != NULL && !usage_day_parse(o.to, &r->to))
        return err_set(e, ERR_BAD_VALUE, "--to %.40s is no day; write it as 2026-12-01", o.to);
    r->from = r->to - (DAYS_USUAL - 1);
    if (o.from != NULL && !usage_day_parse(o.from, &r->from))
        return err_set(e, ERR_BAD_VALUE, "--from %.40s is no day; write it as 2026-12-01", o.from);
    if (r->from > r->to)
        return err_set(e, ERR_BAD_VALUE, "--from is after --to");
    return 0;
}

static int take(struct usage_report *r, struct err *e) {
    if (o.csv && o.json)
        return err_set(e, ERR_BAD_VALUE, "--csv or --json, not both");
    if (o.tenant != NULL && !usage_name_ok(o.tenant))
        return err_set(e, ERR_BAD_VALUE, "--tenant %.60s is no tenant's name", o.tenant);
    r->tenant = o.tenant;
    r->form = o.csv ? USAGE_CSV : o.json ? USAGE_JSON : USAGE_TABLE;
    r->out = stdout;
    r->warn = stderr;
    return take_days(r, e);
}

static int report(struct usage_report *r) {
    struct err e;
    if (take(r, &e) != 0 || usage_report_run(r, &e) != 0)
        return command_usage("usage", "%s", e.msg);
    if (fflush(stdout) != 0 || ferror(stdout))
        return CLI_FAILED;
    return r->n_bad > 0 ? CLI_FAILED : CLI_OK;
}

static int run(int argc, char **argv) {
    static struct settings s; /* its default state folder */
    struct usage_report r = {0};
    struct flags f = {flags, FLAGS, r.folders, 0, USAGE_FOLDERS_MAX, false};
    struct err e;
    memset(&o, 0, sizeof(o));
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("usage", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    settings_defaults(&s);
    r.n_folders = f.n_words > 0 ? (int)f.n_words : 1;
    if (f.n_words == 0)
        r.folders[0] = s.state;
    return report(&r);
}

const struct command command_usage_report = {"usage", "what each tenant used, by day", run, help};
