/* up_state.c - see up_state.h. */
#include "cli/up_state.h"
#include "proto/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_dirs(const char *dir, struct err *e) {
    char part[SETTINGS_TEXT_MAX];
    snprintf(part, sizeof(part), "%s", dir);
    for (char *p = part + 1;; p++) {
        char at = *p;
        if (at != '/' && at != '\0')
            continue;
        *p = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return err_set_param(e, ERR_IO, "state", "cannot make the directory %s: %s", part,
                                 strerror(errno));
        *p = at;
        if (at == '\0')
            return 0;
    }
}

static int in_use(struct up_state *s, struct err *e) {
    char pid[16] = "";
    ssize_t n = pread(s->lock_fd, pid, sizeof(pid) - 1, 0);
    pid[n > 0 ? strspn(pid, "0123456789") : 0] = '\0';
    return err_set_param(e, ERR_IO, "state",
                         "another `sluice up`%s%s uses %s; stop it, or choose another directory "
                         "with --state", pid[0] != '\0' ? ", process " : "", pid, s->dir);
}

static int lock(struct up_state *s, struct err *e) {
    char path[UP_PATH_MAX], pid[16];
    snprintf(path, sizeof(path), "%s/up.lock", s->dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return err_set_param(e, ERR_IO, "state", "cannot open %s: %s", path, strerror(errno));
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return in_use(s, e);
    int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(s->lock_fd, 0) != 0 || pwrite(s->lock_fd, pid, (size_t)n, 0) != n)
        return err_set_param(e, ERR_IO, "state", "cannot write %s: %s", path, strerror(errno));
    return 0;
}

int up_state_open(struct up_state *s, const char *dir, struct err *e) {
    memset(s, 0, sizeof(*s));
    s->lock_fd = -1;
    snprintf(s->dir, sizeof(s->dir), "%s", dir);
    if (snprintf(s->keys, sizeof(s->keys), "%s/link.keys", dir) >= (int)sizeof(s->keys))
        return err_set_param(e, ERR_BAD_VALUE, "state", "the path of --state is too long");
    snprintf(s->gateway_file, sizeof(s->gateway_file), "%s/gateway.json", dir);
    if (make_dirs(dir, e) != 0)
        return -1;
    if (lock(s, e) == 0) {
        s->was_unclean = access(s->gateway_file, F_OK) == 0;
        up_state_forget_gateway(s);
        if (transport_keys_make(s->keys, e) == 0)
            return 0;
    }
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    s->lock_fd = -1;
    return -1;
}

void up_state_forget_gateway(struct up_state *s) {
    unlink(s->gateway_file);
}

static bool copy_text(char *out, const json_t *j) {
    const char *text = json_string_value(j);
    if (text == NULL || strlen(text) >= SETTINGS_TEXT_MAX)
        return false;
    strcpy(out, text);
    return true;
}

int up_state_read_gateway(const struct up_state *s, pid_t pid, struct up_endpoints *out,
                          struct err *e) {
    json_error_t why;
    if (access(s->gateway_file, F_OK) != 0)
        return 0;
    json_t *j = json_load_file(s->gateway_file, 0, &why);
    json_int_t port = json_integer_value(json_object_get(j, "http_port"));
    bool other = json_integer_value(json_object_get(j, "pid")) != pid;
    bool good = port > 0 && port < 65536 && copy_text(out->rpc, json_object_get(j, "rpc")) &&
                copy_text(out->workers, json_object_get(j, "workers"));
    out->http_port = (unsigned)port;
    json_decref(j);
    if (good)
        return other ? 0 : 1;
    return err_set(e, ERR_BAD_FILE, "%s does not name the gateway's addresses", s->gateway_file);
}

void up_state_close(struct up_state *s) {
    if (s->lock_fd < 0)
        return;
    up_state_forget_gateway(s);
    unlink(s->keys);
    close(s->lock_fd);
    s->lock_fd = -1;
}
