/* check.c - the rules between settings, applied after all of them are read. */
#include "config/address.h"
#include "config/config.h"
#include "config/cpulist.h"
#include "config/keys_file.h"
#include "config/table.h"

#include <string.h>

#define LINK_NAME_MAX 32

/* The model's file name without its folder and ".gguf". */
static void name_from_model(struct settings *s) {
    const char *slash = strrchr(s->model, '/');
    const char *file = slash != NULL ? slash + 1 : s->model;
    size_t len = strlen(file);
    if (len > 5 && strcmp(file + len - 5, ".gguf") == 0)
        len -= 5;
    memcpy(s->name, file, len);
    s->name[len] = '\0';
}

static int check_model(struct settings *s, enum settings_program program, struct err *e) {
    bool invented = program == SETTINGS_WORKER && s->engine == SETTINGS_ENGINE_NULL;
    if (s->model[0] == '\0' && !invented)
        return err_set_param(e, ERR_MISSING, "model",
                             "no model: give --model FILE or the key model");
    if (s->name[0] == '\0')
        name_from_model(s);
    if (s->name[0] == '\0' && !invented)
        return err_set_param(e, ERR_BAD_VALUE, "model", "model: '%.200s' names a directory",
                             s->model);
    return 0;
}

/* A link name becomes part of ids and log lines, so it is a plain word. */
static int check_link_name(const char *setting, const char *name, struct err *e) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t len = strlen(name);
    if (len == 0 || len > LINK_NAME_MAX || strspn(name, allowed) != len)
        return err_set_param(e, ERR_BAD_VALUE, setting,
                             "%s: '%.80s' is not a word of 1 to %d letters, digits, '.', '_', '-'",
                             setting, name, LINK_NAME_MAX);
    return 0;
}

static int parse_address(struct address *a, const char *setting, const char *value, struct err *e) {
    struct err why;
    bool http = strcmp(setting, "http") == 0;
    int rc =
        http ? address_parse_host_port(a, value, &why) : address_parse_endpoint(a, value, &why);
    return rc == 0 ? 0 : err_set_param(e, ERR_BAD_VALUE, setting, "%s: %s", setting, why.msg);
}

static const char *debug_switch_on(const struct settings *s, enum settings_program program) {
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        char value[SETTINGS_TEXT_MAX];
        if (strncmp(row->name, "debug-", 6) == 0 && (row->programs & (unsigned)program) != 0 &&
            setting_format(row, s, value, sizeof(value)) == 0 && strcmp(value, row->def) != 0)
            return row->name;
    }
    return NULL;
}

/* Loopback only while there are no keys, since whoever reaches a port may use it; a tenants file makes
 * keys needed and opens the two doors for clients. Debug switches stay refused then, and the workers'
 * listener stays where it is. A worker has no listener; it looks at its link. */
static int check_addresses(const struct settings *s, enum settings_program program, struct err *e) {
    const struct {
        const char *setting, *value;
    } all[] = {{"http", s->http}, {"rpc", s->rpc}, {"workers-endpoint", s->workers_endpoint}};
    const char *debug = debug_switch_on(s, program);
    for (size_t i = program == SETTINGS_WORKER ? 2 : 0; i < 3; i++) {
        struct address a;
        if (parse_address(&a, all[i].setting, all[i].value, e) != 0)
            return -1;
        if (address_is_loopback(&a))
            continue;
        if (debug != NULL)
            return err_set_param(
                e, ERR_BAD_VALUE, debug,
                "%s: debug switches are refused unless %s is loopback, and '%.80s' is not", debug,
                all[i].setting, all[i].value);
        if (i < 2 && s->tenants[0] != '\0')
            continue;
        return err_set_param(
            e, ERR_BAD_VALUE, all[i].setting,
            "%s: '%.80s' is not loopback; %s only 127.0.0.1, ::1, localhost%s are allowed",
            all[i].setting, all[i].value,
            i < 2 ? "until there are keys (--tenants)" : "for workers", i > 0 ? " and ipc://" : "");
    }
    return 0;
}

static int check_cpus(const struct settings *s, struct err *e) {
    struct cpulist gateway, worker;
    struct err why;
    if (cpulist_parse_roles(&gateway, &worker, s->cpus, &why) != 0)
        return err_set_param(e, ERR_BAD_VALUE, "cpus", "cpus: %s", why.msg);
    return 0;
}

static int check_link_times(const struct settings *s, struct err *e) {
    if (s->link_silence_s < 2 * s->link_heartbeat_s)
        return err_set_param(
            e, ERR_BAD_VALUE, "link-silence-s",
            "link-silence-s: must be at least twice link-heartbeat-s, or a healthy link is "
            "taken for dead");
    if (s->restart_backoff_max_s < s->restart_backoff_s)
        return err_set_param(e, ERR_BAD_VALUE, "restart-backoff-max-s",
                             "restart-backoff-max-s: must not be below restart-backoff-s");
    return 0;
}

/* keys.yaml in the folder of the tenants file. */
int settings_place_keys(struct settings *s, struct err *e) {
    const char *slash = strrchr(s->tenants, '/');
    int folder = slash != NULL ? (int)(slash - s->tenants) + 1 : 0;
    if (s->keys[0] != '\0' || s->tenants[0] == '\0')
        return 0;
    if ((size_t)folder + sizeof "keys.yaml" > sizeof s->keys)
        return err_set_param(e, ERR_BAD_VALUE, "keys", "keys: the path would be too long; give --keys");
    memcpy(s->keys, s->tenants, (size_t)folder);
    memcpy(s->keys + folder, "keys.yaml", sizeof "keys.yaml");
    return 0;
}

/* The files are read here so that a mistake in them ends the start with one sentence, before any process
 * runs; they are read again where they are used. */
static int check_files(struct settings *s, enum settings_program program, struct err *e) {
    struct classes_file classes;
    struct tenants_file tenants;
    struct keys_file keys;
    classes_file_default(&classes);
    if (s->classes[0] != '\0' && classes_file_load(&classes, s->classes, e) != 0)
        return -1;
    if (program == SETTINGS_WORKER || s->tenants[0] == '\0')
        return 0;
    if (settings_place_keys(s, e) != 0 || tenants_file_load(&tenants, s->tenants, &classes, e) != 0)
        return -1;
    tenants_file_deinit(&tenants);
    if (keys_file_load(&keys, s->keys, e) != 0)
        return -1;
    keys_file_deinit(&keys);
    return 0;
}

int settings_validate(struct settings *s, enum settings_program program, struct err *e) {
    if (check_model(s, program, e) != 0)
        return -1;
    if (s->workers > 1)
        return err_set_param(
            e, ERR_UNSUPPORTED, "workers",
            "workers: %lld asked for, but a gateway drives one worker so far; use 1",
            (long long)s->workers);
    if (check_link_name("gateway-name", s->gateway_name, e) != 0 ||
        check_link_name("worker-name", s->worker_name, e) != 0)
        return -1;
    if (s->state[0] == '\0')
        return err_set_param(e, ERR_MISSING, "state", "state: no directory; give --state DIR");
    if (check_addresses(s, program, e) != 0 || check_cpus(s, e) != 0 ||
        check_files(s, program, e) != 0)
        return -1;
    return check_link_times(s, e);
}

int settings_threads(const struct settings *s, bool shared) {
    struct cpulist allowed;
    if (s->threads > 0)
        return (int)s->threads;
    cpulist_allowed(&allowed);
    int cores = cpulist_count(&allowed), quota = cpulist_quota();
    if (quota > 0 && quota < cores)
        cores = quota;
    int n = cores - (shared && cores > 1);
    return n < 256 ? n : 256;
}
