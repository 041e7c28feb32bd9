#include "base/priority.h"

#include <sys/resource.h>

void priority_lower(int nice)
{
    (void)setpriority(PRIO_PROCESS, 0, nice); /* on Linux 0 is the calling thread */
}
