/* tenants_file.h - who may use the gateway and how much: a YAML file with a list under `tenants`.
 *
 *   tenants:
 *     - name: alice
 *       weight: 4
 *       classes: [realtime, batch]
 *       tokens-per-minute: 100000
 *
 * Every key but `name` is optional (TENANT_FIELDS; 0 = no limit of this kind). Without `classes` a
 * tenant may use all of the class table, without `models` every model. An empty file is an error, so
 * that a half-written one never locks everybody out or in. Class names are checked against the class
 * table given; other rules: names are unique words of at most 48 bytes.
 * Thread: any (the gateway reads it off its loop). Ownership: tenants_file_deinit frees the rows.
 * Failure: -1, `e` with path, tenant and key in the sentence, and nothing to free.
 */
#ifndef SLUICE_CONFIG_TENANTS_FILE_H
#define SLUICE_CONFIG_TENANTS_FILE_H

#include "config/classes_file.h"

#define TENANTS_FILE_MAX 1024        /* tenants */
#define TENANTS_FILE_BYTES (2u << 20)
#define TENANT_NAME_BYTES 49         /* with the NUL */
#define TENANT_MODELS_MAX 8
#define TENANT_MODEL_BYTES 128

/* X(field, C type, key, kind, default, min, max, unit, meaning) */
#define TENANT_FIELDS(X)                                                                           \
    X(weight, double, "weight", NUMBER, "1", 0.001, 1000, "",                                      \
      "share beside other tenants of the same class")                                             \
    X(requests_per_minute, int64_t, "requests-per-minute", INT, "0", 0, 4294967295.0, "requests",  \
      "requests admitted in any 60 s")                                                            \
    X(tokens_per_minute, int64_t, "tokens-per-minute", INT, "0", 0, 4294967295.0, "tokens",        \
      "tokens made in the last 60 s and reserved, at every instant")                              \
    X(budget_wait_s, double, "budget-wait-s", SECONDS, "0", 0, 3600, "s",                          \
      "how long a request may wait for room in these limits; 0: 429 at once")                     \
    X(max_in_flight, int64_t, "max-in-flight", INT, "0", 0, 1048576, "requests",                   \
      "requests waiting and running at the same time")                                            \
    X(queue_room, int64_t, "queue-room", INT, "0", 0, 1048576, "requests",                         \
      "requests that may wait in the gateway's queues; 0: an equal share of the room")            \
    X(kv_quota, int64_t, "kv-quota", INT, "0", 0, 2147483647, "positions",                         \
      "KV positions its sequences may hold on a worker's device")                                 \
    X(default_output_tokens, int64_t, "default-output-tokens", INT, "0", 0, 1048576, "tokens",     \
      "max_tokens of a chat request that gives none; 0: default-max-tokens-chat")                 \
    X(max_output_tokens, int64_t, "max-output-tokens", INT, "0", 0, 1048576, "tokens",             \
      "largest max_tokens; more is 400")                                                          \
    X(money_per_day, double, "money-per-day", NUMBER, "0", 0, 10000000, "",                        \
      "money that may be spent on a UTC day, in any unit")                                        \
    X(prompt_price, double, "prompt-price", NUMBER, "0", 0, 4000, "",                              \
      "price of a million prompt tokens, in that unit")                                           \
    X(output_price, double, "output-price", NUMBER, "0", 0, 4000, "",                              \
      "price of a million output tokens")

struct tenant_line {
    char name[TENANT_NAME_BYTES];
    uint8_t classes;               /* bit k = may use class k of the table */
    uint32_t n_models;             /* 0 = every model */
    char models[TENANT_MODELS_MAX][TENANT_MODEL_BYTES];
#define TENANT_MEMBER(field, type, key, kind, def, min, max, unit, help) type field;
    TENANT_FIELDS(TENANT_MEMBER)
#undef TENANT_MEMBER
};

struct tenants_file { struct tenant_line *rows; uint32_t n; };

int tenants_file_load(struct tenants_file *f, const char *path, const struct classes_file *classes,
                      struct err *e);
void tenants_file_deinit(struct tenants_file *f);
/* All limits at their default and every class allowed: what a gateway without a file lets in. */
void tenant_line_default(struct tenant_line *line, const char *name);
const struct tenant_line *tenants_file_find(const struct tenants_file *f, const char *name);
/* May it use this model? */
bool tenant_line_model(const struct tenant_line *line, const char *model);
/* Bit mask of class names; -1 and the first unknown name in *bad. */
int class_names_mask(const struct classes_file *classes, char *const *names, unsigned n,
                     const char **bad);

#endif
