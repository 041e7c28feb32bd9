/* config.h - the settings of every program: one table, read from defaults, a YAML file and flags.
 *
 * settings.def is the table. From it come struct settings (one member a row), the flags, the YAML
 * keys, --help, docs/CONFIG.md and the command lines that `sluice up` hands to its children.
 * Precedence: defaults < YAML file < flags. One file may serve every program: a known key that
 * another program reads is accepted; a flag of another program is refused, by name.
 *
 * Order of calls: settings_parse_args does all of it. Programs that set fields by themselves start
 * with settings_defaults and end with settings_validate. Thread: any, no shared state.
 * Ownership: struct settings is plain storage without pointers; copy it freely (about 6 KiB).
 * Failure: -1 (or SETTINGS_BAD) and `e`, with the setting's name in e->param and in the sentence.
 *
 * Kinds: TEXT and PATH up to SETTINGS_TEXT_MAX - 1 bytes without control characters, a leading "~/"
 * of a PATH is the home directory; INT takes k, m, g (x 1024); AUTO_INT too, "auto" is kept as 0
 * (as -1 where 0 is a value of its own);
 * BOOL true/false, yes/no, on/off, as a flag alone true; CHOICE one of the listed words, its index in
 * the field; NUMBER a decimal number with at most 3 decimals; SECONDS the same, or with a suffix ms, s, m, h.
 */
#ifndef SLUICE_CONFIG_CONFIG_H
#define SLUICE_CONFIG_CONFIG_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SETTINGS_TEXT_MAX 512
#define SETTINGS_FILE_MAX (1u << 20) /* bytes of a YAML file */

enum settings_program { SETTINGS_GATEWAY = 1, SETTINGS_WORKER = 2, SETTINGS_UP = 4 };

/* What main does next. SETTINGS_CHECK: everything was read and is valid; print it and exit 0. */
enum settings_action {
    SETTINGS_BAD = -1,
    SETTINGS_RUN,
    SETTINGS_HELP,
    SETTINGS_VERSION,
    SETTINGS_CHECK
};

/* Values of the CHOICE fields; log_level holds an enum log_level of base/log.h. */
enum settings_engine { SETTINGS_ENGINE_CPU, SETTINGS_ENGINE_NULL };
enum settings_kv_type { SETTINGS_KV_F16, SETTINGS_KV_INT8 };
enum settings_debug_resume { SETTINGS_RESUME_AUTO, SETTINGS_RESUME_SWAP, SETTINGS_RESUME_RECOMPUTE };
enum settings_kernel {
    SETTINGS_KERNEL_AUTO,
    SETTINGS_KERNEL_SCALAR,
    SETTINGS_KERNEL_AVX2,
    SETTINGS_KERNEL_AVX512
};

struct settings {
#define SETTINGS_TYPE_TEXT(field) char field[SETTINGS_TEXT_MAX];
#define SETTINGS_TYPE_PATH(field) char field[SETTINGS_TEXT_MAX];
#define SETTINGS_TYPE_INT(field) int64_t field;
#define SETTINGS_TYPE_AUTO_INT(field) int64_t field; /* 0 = auto; -1 where the row's min is 0 */
#define SETTINGS_TYPE_BOOL(field) bool field;
#define SETTINGS_TYPE_CHOICE(field) int field;
#define SETTINGS_TYPE_NUMBER(field) double field;
#define SETTINGS_TYPE_SECONDS(field) double field;
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help)                     \
    SETTINGS_TYPE_##kind(field)
#include "config/settings.def"
};

/* Every field at its default. Cannot fail: a default that does not parse asserts. */
void settings_defaults(struct settings *s);

/* One value, as text, by the setting's name ("max-seqs"). */
int settings_set(struct settings *s, const char *name, const char *value, struct err *e);
/* The value as settings_set would take it; -1 when the name is unknown or `cap` too small. */
int settings_get(const struct settings *s, const char *name, char *out, size_t cap);

/* Lays a YAML file over *s. A missing or empty file differs: missing is an error, empty changes
 * nothing. Unknown and repeated keys, nested values and a second document are refused. */
int settings_load_yaml(struct settings *s, const char *path, struct err *e);

/* Defaults, then --config FILE, then the other flags of argv[1..], then settings_validate. Forms:
 * --name VALUE, --name=VALUE, --bool; --help (-h), --version, --config FILE, --check-config.
 * --help and --version win over any error elsewhere on the line. A repeated flag: the last one; a
 * repeated --config: the later file over the earlier one. argv[0] is not looked at. */
enum settings_action settings_parse_args(struct settings *s, enum settings_program program, int argc,
                                         char *const argv[], struct err *e);

/* Rules between settings: what is required, addresses are loopback, debug switches only there,
 * names and core lists are well-formed. Fills in `name` from the model's file when it is empty. */
int settings_validate(struct settings *s, enum settings_program program, struct err *e);

/* Where the key hashes are when `keys` says nothing: keys.yaml beside the tenants file. Part of
 * settings_validate. */
int settings_place_keys(struct settings *s, struct err *e);

/* Compute threads after "auto": cores this process may use (mask and quota), less one when `shared` (the gateway
 * runs on the same cores) and more than one is left; at least 1. */
int settings_threads(const struct settings *s, bool shared);

/* Command line for a child: argv[0] is `argv0`, then --name=value for each setting of `program` that
 * is not at its default, then NULL. NULL when there is no memory. Free with settings_argv_free. */
char **settings_to_argv(const struct settings *s, enum settings_program program, const char *argv0);
void settings_argv_free(char ***argv);

void settings_help(FILE *f, enum settings_program program); /* the options part of --help */
void settings_doc(FILE *f);                                 /* docs/CONFIG.md, whole */
void settings_dump(FILE *f, const struct settings *s, enum settings_program program); /* as YAML */

#endif
