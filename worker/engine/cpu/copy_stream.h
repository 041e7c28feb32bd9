/* copy_stream.h - copies blocks past the caches.
 *
 * Why: a block is hundreds of KiB that nobody reads soon. A plain store first reads the line it
 * overwrites, and throws what compute threads use out of their caches; a streaming store does
 * neither. Four pages are walked side by side, which keeps more of the memory's rows open.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_COPY_STREAM_H
#define SLUICE_WORKER_ENGINE_CPU_COPY_STREAM_H

#include <stddef.h>

/* n a multiple of 64, both ends on 64, no overlap. */
void copy_stream(void *to, const void *from, size_t n);
/* Call before telling another thread: streaming stores obey no release order by themselves. */
void copy_stream_drain(void);

#endif
