/* bench_flags.c - see bench_flags.h. */
#include "cli/bench_flags.h"
#include "cli/command.h"
#include "model/model.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define LOW 1000
#define HIGH 32000

static bool stopped;

int bench_flags_vocab(struct mixed_options *o, struct err *e) {
    static struct model m;
    if (o->id_high == 0 && o->model == NULL)
        o->id_high = HIGH;
    if (o->id_high == 0) {
        if (model_open(&m, o->model, NULL, e) != 0)
            return -1;
        o->id_high = m.hp.n_vocab;
        model_close(&m);
    }
    /* The first ids of a vocabulary are control tokens and single bytes. */
    o->id_low = o->id_high > 2 * LOW ? LOW : o->id_high / 2;
    return 0;
}

static void on_signal(int number) {
    (void)number;
    stopped = true;
}

void bench_flags_signals(void) {
    struct sigaction a = {.sa_handler = on_signal};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL);
}

const bool *bench_flags_stop(void) {
    return &stopped;
}

int bench_flags_target(const char *command, const struct mixed_options *o) {
    if ((o->model == NULL) == (o->url == NULL))
        return command_usage(command,
                             "give one of --model FILE (a server is started for it) and --url URL");
    if (o->model != NULL && access(o->model, R_OK) != 0)
        return command_usage(command, "cannot read the model %s: %s", o->model, strerror(errno));
    if (strcmp(o->engine, "cpu") != 0 && strcmp(o->engine, "null") != 0)
        return command_usage(command, "--engine is cpu or null, not '%.40s'", o->engine);
    return 0;
}
