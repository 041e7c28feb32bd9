#include "config/file_sync.h"

#include <errno.h>
#include <unistd.h>

int file_sync_write(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return fsync(fd);
}
