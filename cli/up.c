/* up.c - `sluice up`: settings in, supervisor round them. */
#include "base/log.h"
#include "cli/command.h"
#include "cli/supervisor.h"
#include "cli/up_cores.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define EXIT_MODEL 2 /* as the children end when the model cannot be used */

static void help(FILE *f) {
    fprintf(f, "Usage: sluice up --model FILE [FLAGS]\n\n"
               "Starts a gateway and a worker for one model and keeps them running; a crashed one is "
               "started again.\nOnce requests can be served, and again after a restart, one line on "
               "stdout:\n  READY http://127.0.0.1:8000/v1 rpc tcp://127.0.0.1:5570 model NAME\n"
               "Ctrl-C or SIGTERM: running requests may end, then all stops; a second one: at once.\n"
               "Both processes are pinned (gateway: the last core, worker: the others) unless --cpus "
               "says\notherwise.\n\n");
    settings_help(f, SETTINGS_UP);
    fprintf(f, "\nExamples:\n"
               "  sluice up --model SmolLM2-135M-Instruct.Q4_1.gguf\n"
               "  sluice up --model m.gguf --name my-model --http 127.0.0.1:9000 --max-seqs 32\n"
               "  sluice up --model m.gguf --cpus gateway=3,worker=0-2 --kv-tokens 16k\n"
               "\nExit codes: 0 stopped by a signal; 1 usage or settings wrong, port or state "
               "directory taken;\n2 the model cannot be used; 3 never ready, or crashed over and "
               "over.\n");
}

static int check_model_file(const struct settings *s) {
    if (access(s->model, R_OK) == 0)
        return CLI_OK;
    fprintf(stderr, "sluice up: cannot read the model %s: %s\n", s->model, strerror(errno));
    return EXIT_MODEL;
}

static int serve(struct settings *s) {
    struct supervisor v;
    struct up_cores cores;
    struct cpulist allowed;
    struct err e;
    int code = check_model_file(s);
    if (code != CLI_OK)
        return code;
    cpulist_allowed(&allowed);
    if (up_cores_decide(&cores, s->cpus, s->threads, &allowed, cpulist_quota(), &e) != 0)
        return command_usage("up", "%s", e.msg);
    snprintf(s->cpus, sizeof(s->cpus), "%s", cores.cpus);
    s->threads = cores.threads;
    if (supervisor_init(&v, s, &e) != 0)
        return command_usage("up", "%s", e.msg);
    log_open("up", (enum log_level)s->log_level, s->log_json);
    log_info("state %s, %d compute threads, cores %s", s->state, cores.threads,
             cores.cpus[0] != '\0' ? cores.cpus : "not pinned");
    code = supervisor_run(&v);
    supervisor_deinit(&v);
    return code;
}

static int run(int argc, char **argv) {
    static struct settings s;
    struct err e;
    switch (settings_parse_args(&s, SETTINGS_UP, argc, argv, &e)) {
    case SETTINGS_HELP:
        help(stdout);
        return CLI_OK;
    case SETTINGS_VERSION:
        printf("sluice %s\n", SLUICE_VERSION);
        return CLI_OK;
    case SETTINGS_CHECK:
        settings_dump(stdout, &s, SETTINGS_UP);
        return CLI_OK;
    case SETTINGS_RUN:
        return serve(&s);
    case SETTINGS_BAD:
        break;
    }
    return command_usage("up", "%s", e.msg);
}

const struct command command_up = {"up", "start and supervise gateway and worker", run, help};
