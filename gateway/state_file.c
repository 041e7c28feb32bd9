#include "gateway/state_file.h"

#include "gateway/dispatch.h"
#include "gateway/http.h"
#include "gateway/rpc_door.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_dirs(const char *path)
{
    char part[SETTINGS_TEXT_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return -1;
        *p = '/';
    }
    return mkdir(part, 0700) != 0 && errno != EEXIST ? -1 : 0;
}

int state_file_folder(const struct gateway *g, struct err *e)
{
    const char *dir = g->settings->state;
    if (make_dirs(dir) != 0)
        return err_set(e, ERR_IO, "cannot make the state directory %s: %s", dir, strerror(errno));
    return 0;
}

int state_file_write(const struct gateway *g, struct err *e)
{
    const char *dir = g->settings->state;
    char tmp[SETTINGS_TEXT_MAX + 32], path[SETTINGS_TEXT_MAX + 32];
    if (state_file_folder(g, e) != 0) return -1;
    snprintf(tmp, sizeof tmp, "%s/gateway.json.tmp", dir);
    snprintf(path, sizeof path, "%s/gateway.json", dir);
    FILE *f = fopen(tmp, "w");
    if (f == NULL) return err_set(e, ERR_IO, "cannot write %s: %s", tmp, strerror(errno));
    fprintf(f, "{\"http_port\":%u,\"rpc\":\"%s\",\"workers\":\"%s\",\"pid\":%ld}\n",
            http_port(g->http), rpc_door_endpoint(g->rpc), dispatch_endpoint(g->dispatch),
            (long)getpid());
    int bad = fflush(f) != 0 || fsync(fileno(f)) != 0;
    bad |= fclose(f) != 0;
    if (bad || rename(tmp, path) != 0)
        return err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return 0;
}
