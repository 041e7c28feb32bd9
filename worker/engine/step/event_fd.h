/* event_fd.h - writing and resetting the eventfd that tells the owner of waiting completions. */
#ifndef SLUICE_WORKER_ENGINE_STEP_EVENT_FD_H
#define SLUICE_WORKER_ENGINE_STEP_EVENT_FD_H

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

static inline void event_fd_signal(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static inline void event_fd_reset(int fd)
{
    uint64_t n;
    while (read(fd, &n, sizeof n) < 0 && errno == EINTR) {
    }
}

#endif
