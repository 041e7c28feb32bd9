/* child.c - see child.h. */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int child_init(struct child *c, const char *name, const char *program, const struct settings *s,
               struct err *e) {
    memset(c, 0, sizeof(*c));
    c->name = name;
    c->pause_first_ms = c->pause_ms = s->restart_backoff_s * 1e3;
    c->pause_max_ms = s->restart_backoff_max_s * 1e3;
    ssize_t n = readlink("/proc/self/exe", c->path, sizeof(c->path) - 1);
    if (n <= 0)
        return err_set(e, ERR_IO, "cannot find my own program: %s", strerror(errno));
    c->path[n] = '\0';
    char *slash = strrchr(c->path, '/');
    size_t room = sizeof(c->path) - (size_t)(slash + 1 - c->path);
    if (snprintf(slash + 1, room, "%s", program) >= (int)room || access(c->path, X_OK) != 0)
        return err_set(e, ERR_IO, "%s is not there or cannot be run: %s", c->path, strerror(errno));
    return 0;
}

/* In the new process. Only calls that are safe after fork, and no return. */
static void become(const struct child *c, char *const argv[], int supervisor_fd, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(127);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(2, 1);
    fcntl(supervisor_fd, F_SETFD, 0);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(c->path, argv);
    static const char text[] = "sluice up: cannot execute a program beside me\n";
    if (write(2, text, sizeof(text) - 1) < 0) {
        /* nobody to tell */
    }
    _exit(127);
}

int child_start(struct child *c, enum settings_program program, const struct settings *s,
                struct err *e) {
    const char *slash = strrchr(c->path, '/');
    char **argv = settings_to_argv(s, program, slash + 1);
    if (argv == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become(c, argv, (int)s->supervisor_fd, parent);
    int saved = errno;
    settings_argv_free(&argv);
    if (pid < 0)
        return err_set(e, ERR_IO, "cannot start %s: %s", c->path, strerror(saved));
    c->pid = pid;
    c->due_ms = 0;
    return 0;
}

bool child_ended(struct child *c) {
    if (c->pid == 0 || waitpid(c->pid, &c->status, WNOHANG) != c->pid)
        return false;
    c->pid = 0;
    return true;
}

void child_plan(struct child *c, double now_ms) {
    c->crashes++;
    c->due_ms = now_ms + c->pause_ms;
    c->pause_ms = c->pause_ms * 2 < c->pause_max_ms ? c->pause_ms * 2 : c->pause_max_ms;
}

void child_proved(struct child *c) {
    c->pause_ms = c->pause_first_ms;
    c->crashes = 0;
}

void child_signal(const struct child *c, int signal_number) {
    if (c->pid > 0)
        kill(c->pid, signal_number);
}

void child_describe(const struct child *c, char *out, size_t cap) {
    if (WIFSIGNALED(c->status))
        snprintf(out, cap, "killed by signal %d", WTERMSIG(c->status));
    else
        snprintf(out, cap, "exit code %d", WEXITSTATUS(c->status));
}
