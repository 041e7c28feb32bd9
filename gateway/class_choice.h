/* class_choice.h - which class a request runs in: the one rule, the same at every door and for a job.
 *
 *   1. The class asked for: the header X-Sluice-Class, the RPC field `class`, or a job's. An empty word is
 *      as good as none; a word that names no class is an error (400), whoever asks.
 *   2. Else `service_tier: flex` asks for the most urgent class below real-time.
 *   3. Else the most urgent class that the caller may use.
 * What was asked is then clamped to what the tenant (and the key) may use: a class that is not allowed
 * becomes the next less urgent one that is, and where there is none, the least urgent allowed. So nothing a
 * client sends can ever raise it above its most urgent allowed class.
 * Pure. Thread: any.
 */
#ifndef SLUICE_GATEWAY_CLASS_CHOICE_H
#define SLUICE_GATEWAY_CLASS_CHOICE_H

#include "base/err.h"
#include "scheduler/class_table.h"

/* `allowed`: bit k = class k; at least one of the table's. 0, or -1 with ERR_BAD_VALUE. */
int class_choose(const struct class_table *t, uint8_t allowed, const char *word, bool flex,
                 uint8_t *cls, struct err *e);
uint8_t class_clamp(const struct class_table *t, uint8_t allowed, uint8_t asked);
/* Bits of all classes there are. */
uint8_t class_all(const struct class_table *t);

#endif
