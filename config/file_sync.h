/* file_sync.h - bytes that must be on the disk before the next step of an atomic replacement. Any thread. */
#ifndef SLUICE_CONFIG_FILE_SYNC_H
#define SLUICE_CONFIG_FILE_SYNC_H

#include <stddef.h>

/* All n bytes written and synced: 0, or -1 with errno. */
int file_sync_write(int fd, const char *p, size_t n);

#endif
