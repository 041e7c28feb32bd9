/* main.c - `sluice`: the commands people type. */
#include "base/mem.h"
#include "cli/command.h"

#include <jansson.h>
#include <signal.h>

int main(int argc, char **argv) {
    /* A reader that went away is an error of write(2), told by its errno, and no end of the process. */
    signal(SIGPIPE, SIG_IGN);
    json_set_alloc_funcs(mem_alloc, mem_free);
    int code = command_main(argc, argv);
    if (fflush(stdout) != 0 && code == CLI_OK)
        code = CLI_FAILED;
    return code;
}
