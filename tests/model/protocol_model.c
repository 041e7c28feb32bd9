/* Exhaustive search of the link's rules against the real gateway_core and worker_core: one request
 * (prompt 2, 3 output tokens), two workers, up to three faults of any kind. Then each rule taken
 * out alone must make the search find a violation, or the search itself proves nothing. */
#include "tests/model/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failures;

static void report(const struct search_variant *v, const struct search_result *r, clock_t start,
                   bool ok)
{
    printf("%-44s faults %u: %8llu states, %9llu transitions, %4llu rests, depth %3u, %5.1f s cpu: "
           "%s%s\n",
           v->name, v->faults, (unsigned long long)r->states, (unsigned long long)r->transitions,
           (unsigned long long)r->rests, r->depth, (double)(clock() - start) / CLOCKS_PER_SEC,
           ok ? "ok" : "FAILED", v->mutation != MUT_NONE && r->violation != NULL ? "" : "");
    if (v->mutation != MUT_NONE)
        printf("    found: %s\n", r->violation != NULL ? r->violation : "nothing");
    failures += !ok;
    fflush(stdout);
}

static void must_hold(struct search_variant v)
{
    clock_t start = clock();
    struct search_result r = search_run(&v, true);
    report(&v, &r, start, r.violation == NULL);
}

static void must_be_found(struct search_variant v)
{
    clock_t start = clock();
    struct search_result r = search_run(&v, getenv("MODEL_PRINT") != NULL);
    bool cheap = r.violation != NULL && (strstr(r.violation, "the search") != NULL ||
                                         strstr(r.violation, "more states") != NULL);
    report(&v, &r, start, r.violation != NULL && !cheap);
}

int main(int argc, char **argv)
{
    bool full = argc > 1 && strcmp(argv[1], "full") == 0;
    static const struct {
        const char *name;
        enum world_mutation m;
        uint8_t cls;
    } rules[] = {
        {"SUBMIT before SYNC was answered", MUT_SUBMIT_BEFORE_SYNC, CLASS_BATCH},
        {"answers under old ids accepted", MUT_ACCEPT_OLD_IDS, CLASS_REALTIME},
        {"unknown ids not cancelled", MUT_NO_CANCEL_OF_UNKNOWN, CLASS_REALTIME},
        {"finish sent once", MUT_FINISH_ONCE, CLASS_REALTIME},
        {"old queue delivered to the new session", MUT_OLD_QUEUE_TO_NEW_SESSION, CLASS_BATCH},
        {"no GAP", MUT_NO_GAP, CLASS_REALTIME},
        {"a SUBMIT that was not sent is not told", MUT_SILENT_DROP, CLASS_BATCH},
    };
    struct search_variant all[] = {
        {.name = "real-time", .cls = CLASS_REALTIME, .up = true, .faults = 3},
        {.name = "batch, durable", .cls = CLASS_BATCH, .durable = true, .up = true, .faults = 3},
        {.name = "real-time, workers come up", .cls = CLASS_REALTIME, .faults = 2},
        {.name = "batch, durable, workers come up",
         .cls = CLASS_BATCH,
         .durable = true,
         .faults = 2},
        {.name = "batch, durable, two numerics ids",
         .cls = CLASS_BATCH,
         .durable = true,
         .two_numerics = true,
         .up = true,
         .faults = 3},
        {.name = "real-time, a second client after a cancel",
         .cls = CLASS_REALTIME,
         .second_client = true,
         .up = true,
         .faults = 2},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!full) all[i].faults--;
        must_hold(all[i]);
    }
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        must_be_found((struct search_variant){.name = rules[i].name,
                                              .cls = rules[i].cls,
                                              .durable = rules[i].cls == CLASS_BATCH,
                                              .second_client = rules[i].m == MUT_ACCEPT_OLD_IDS,
                                              .mutation = rules[i].m,
                                              .faults = 2,
                                              .states_max = 2000000});
    printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
