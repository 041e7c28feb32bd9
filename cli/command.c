/* command.c - see command.h. */
#include "cli/command.h"
#include "cli/nearest.h"

#include <stdarg.h>
#include <string.h>

static const struct command *const commands[] = {&command_up, &command_chat, &command_batch,
                                               &command_bench, &command_eval, &command_sim,
                                               &command_usage_report, &command_keys,
                                               &command_store, &command_explain};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char *const words[] = {"up", "chat", "batch", "bench", "eval", "sim", "usage", "keys", "store",
                                    "explain", "version", "help"};
#define WORDS (sizeof(words) / sizeof(words[0]))

void command_exit_codes(FILE *f) {
    fprintf(f, "\nExit codes: 0 done; 1 usage, file or settings wrong, nothing was done; 2 the "
               "request or some\nlines failed; 3 no server reached; 130 interrupted.\n");
}

void command_help(FILE *f) {
    fprintf(f, "sluice - chat first, bulk work with all the rest, on one pool of accelerators\n\n"
               "Usage: sluice COMMAND [ARGUMENTS]\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(f, "  %-10s%s\n", commands[i]->name, commands[i]->line);
    fprintf(f, "  %-10s%s\n", "version", "the version of this program");
    fprintf(f, "  %-10s%s\n", "help", "this text; `sluice COMMAND --help` says more");
    fprintf(f, "\nExamples:\n"
               "  sluice up --model SmolLM2-135M-Instruct.Q4_1.gguf\n"
               "  sluice chat \"Why is the sky blue?\" --stats\n"
               "  sluice batch run in.jsonl out.jsonl\n");
    command_exit_codes(f);
}

int command_usage(const char *cmd, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "sluice%s%s: ", cmd[0] != '\0' ? " " : "", cmd);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    return CLI_USAGE;
}

static const struct command *find(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown(const char *name) {
    const char *near = nearest_word(name, words, WORDS);
    if (near != NULL)
        return command_usage("", "unknown command '%.60s', did you mean '%s'?", name, near);
    return command_usage("", "unknown command '%.60s'; `sluice help` lists them all", name);
}

static int help_of(const char *name) {
    const struct command *c = name != NULL ? find(name) : NULL;
    if (c != NULL)
        c->help(stdout);
    else if (name == NULL || strcmp(name, "help") == 0 || strcmp(name, "version") == 0)
        command_help(stdout);
    else
        return unknown(name);
    return CLI_OK;
}

int command_main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        command_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("sluice %s\n", SLUICE_VERSION);
        return CLI_OK;
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help_of(argc > 2 ? argv[2] : NULL);
    const struct command *c = find(name);
    return c != NULL ? c->run(argc - 1, argv + 1) : unknown(name);
}
