/* priority.h - how much of a busy core a thread of minor work gets.
 *
 * Not SCHED_IDLE: beside a compute thread on the same core (the usual placement of a small machine) it
 * gets a third of a per cent, so that what it does never ends; measured, 127 blocks copied in 20 s.
 */
#ifndef SLUICE_BASE_PRIORITY_H
#define SLUICE_BASE_PRIORITY_H

/* Nice levels. Against a thread of normal priority on its core, such a thread gets ... */
#define PRIORITY_COPY 5 /* a quarter while it has work: copies are short, and what waits for them is computed again */
#define PRIORITY_LOG 10 /* a tenth */

/* The calling thread alone. A refusal (a seccomp filter) leaves it as it is. */
void priority_lower(int nice);

#endif
