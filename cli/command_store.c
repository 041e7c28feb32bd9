/* command_store.c - `sluice store check`: is the store of a gateway's state folder whole? */
#include "cli/command.h"
#include "cli/flags.h"
#include "config/config.h"
#include "gateway/store_check.h"

#include <jansson.h>
#include <string.h>

static bool json;

static const struct flag flags[] = {
    {"json", FLAG_BOOL, &json, 0, 0, "", "one JSON object"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f, "Usage: sluice store check [STATE-FOLDER] [FLAGS]\n\n"
               "Reads the store of batch jobs through (default: that of `sluice up`): the database, the "
               "counts against the\nresults, every stored file against its hash, files that nobody "
               "names, the journal. Changes nothing.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExample:\n  sluice store check --json\n"
               "\nExit codes: 0 whole; 1 usage, or there is no store to read; 2 something is damaged.\n");
}

static bool whole(const struct store_report *r) { return r->problem[0] == '\0'; }

static void print_json(const struct store_report *r) {
    json_t *o = json_pack("{s:b,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:I,s:I}", "ok", whole(r),
                          "integrity", r->integrity, "problem", r->problem, "files", (json_int_t)r->files,
                          "jobs", (json_int_t)r->jobs, "results", (json_int_t)r->results, "wrong_counts",
                          (json_int_t)r->wrong_counts, "homeless_results", (json_int_t)r->homeless_results,
                          "missing_blobs", (json_int_t)r->missing_blobs, "bad_blobs", (json_int_t)r->bad_blobs,
                          "orphan_blobs", (json_int_t)r->orphan_blobs, "journal_ok", r->journal_ok,
                          "journal_records", (json_int_t)r->journal.records, "journal_lines",
                          (json_int_t)r->journal.live_lines, "journal_torn_bytes",
                          (json_int_t)r->journal.torn_bytes);
    json_dumpf(o, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(o);
}

static void print_text(const struct store_report *r) {
    printf("database   %s\n", r->integrity);
    printf("holds      %lld files, %lld jobs, %lld results\n", (long long)r->files, (long long)r->jobs,
           (long long)r->results);
    printf("counts     %lld jobs differ from their results, %lld results without a job\n",
           (long long)r->wrong_counts, (long long)r->homeless_results);
    printf("blobs      %lld missing, %lld changed, %lld that nobody names\n", (long long)r->missing_blobs,
           (long long)r->bad_blobs, (long long)r->orphan_blobs);
    printf("journal    %s, %llu lines running, %llu bytes after the last whole record\n",
           r->journal_ok ? "readable" : "not readable", (unsigned long long)r->journal.live_lines,
           (unsigned long long)r->journal.torn_bytes);
    if (whole(r)) printf("the store is whole\n");
    else printf("DAMAGED: %s\n", r->problem);
}

static int run(int argc, char **argv) {
    static struct settings s; /* its default state folder */
    const char *words[2] = {0};
    struct flags f = {flags, FLAGS, words, 0, 2, false};
    struct store_report r;
    struct err e;
    json = false;
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("store", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (f.n_words == 0 || strcmp(words[0], "check") != 0)
        return command_usage("store", "say what: sluice store check [STATE-FOLDER]");
    settings_defaults(&s);
    if (store_check(f.n_words > 1 ? words[1] : s.state, &r, &e) != 0)
        return command_usage("store", "%s", e.msg);
    if (json) print_json(&r);
    else print_text(&r);
    return whole(&r) ? CLI_OK : CLI_FAILED;
}

const struct command command_store = {"store", "is the store of batch jobs whole", run, help};
