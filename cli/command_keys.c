/* command_keys.c - `sluice keys add|list|revoke`: the file of key hashes, changed in one rename. */
#include "base/mem.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "config/config.h"
#include "config/keys_file.h"
#include "proto/api_key.h"

#include <string.h>
#include <time.h>

_Static_assert(KEY_HASH_BYTES == API_KEY_HASH_BYTES, "one hash");

static struct {
    const char *config, *tenants, *keys, *classes, *tenant, *note;
    char *names[CLASS_LINES_MAX]; /* --class, each */
    unsigned n_names;
    struct settings settings;
} o;

static const struct flag table[] = {
    {"config", FLAG_TEXT, &o.config, 0, 0, "FILE", "the gateway's settings file, for the paths below"},
    {"tenants", FLAG_TEXT, &o.tenants, 0, 0, "FILE", "the tenants file"},
    {"keys", FLAG_TEXT, &o.keys, 0, 0, "FILE", "the keys file (keys.yaml beside the tenants file)"},
    {"classes", FLAG_TEXT, &o.classes, 0, 0, "FILE", "the class table, where there is one"},
    {"tenant", FLAG_TEXT, &o.tenant, 0, 0, "NAME", "add: whose key; list: only this one's"},
    {"note", FLAG_TEXT, &o.note, 0, 0, "TEXT", "add: what the key is for, for `list`"},
};
#define FLAGS (sizeof(table) / sizeof(table[0]))

static void help(FILE *f) {
    fprintf(f, "Keys of tenants. Only their hashes are kept; a running gateway follows the file.\n\n"
               "Usage: sluice keys add --tenant NAME [--class CLASS]... [--note TEXT] [FLAGS]\n"
               "       sluice keys list [--tenant NAME] [FLAGS]\n"
               "       sluice keys revoke KEY_ID [FLAGS]\n\n"
               "add prints the new key to stdout, this once. revoke takes an id as `list` shows it.\n"
               "FLAGS say which files: --config, or --tenants (and --keys). --class may be repeated;\n"
               "without it a key may use all classes of its tenant.\n");
    flags_help(f, table, FLAGS);
    command_exit_codes(f);
}

/* The flags' table keeps the last of a repeated flag; --class is taken out before it. */
static int take_classes(int *argc, char **argv, struct err *e) {
    int to = 1;
    for (int i = 1; i < *argc; i++) {
        char *value = NULL;
        if (strncmp(argv[i], "--class=", 8) == 0) {
            value = argv[i] + 8;
        } else if (strcmp(argv[i], "--class") == 0) {
            if (i + 1 == *argc)
                return err_set(e, ERR_MISSING, "--class needs a value");
            value = argv[++i];
        } else {
            argv[to++] = argv[i];
            continue;
        }
        if (o.n_names == CLASS_LINES_MAX)
            return err_set(e, ERR_BAD_VALUE, "more than %d times --class", CLASS_LINES_MAX);
        o.names[o.n_names++] = value;
    }
    *argc = to;
    return 0;
}

static int set_path(const char *name, const char *value, struct err *e) {
    return value != NULL ? settings_set(&o.settings, name, value, e) : 0;
}

/* Settings file, then flags; the keys file is where the gateway would look for it. */
static int find_files(struct err *e) {
    struct settings *s = &o.settings;
    settings_defaults(s);
    if (o.config != NULL && settings_load_yaml(s, o.config, e) != 0)
        return -1;
    if (set_path("tenants", o.tenants, e) != 0 || set_path("keys", o.keys, e) != 0 ||
        set_path("classes", o.classes, e) != 0)
        return -1;
    if (settings_place_keys(s, e) != 0)
        return -1;
    if (s->keys[0] == '\0')
        return err_set(e, ERR_MISSING, "which file? give --config FILE, --tenants FILE or --keys FILE");
    return 0;
}

/* The name of a tenant or class that nobody knows would be found out by the first caller only. */
static int check_names(struct err *e) {
    const struct settings *s = &o.settings;
    struct classes_file classes;
    struct tenants_file tenants;
    const char *bad = "";
    classes_file_default(&classes);
    if (s->classes[0] != '\0' && classes_file_load(&classes, s->classes, e) != 0)
        return -1;
    int mask = class_names_mask(&classes, o.names, o.n_names, &bad);
    if (mask < 0)
        return err_set(e, ERR_BAD_VALUE, "there is no class '%.40s'", bad);
    if (s->tenants[0] == '\0')
        return 0;
    if (tenants_file_load(&tenants, s->tenants, &classes, e) != 0)
        return -1;
    const struct tenant_line *t = tenants_file_find(&tenants, o.tenant);
    int rc = t == NULL ? err_set(e, ERR_BAD_VALUE, "there is no tenant '%.60s' in %s", o.tenant,
                                 s->tenants)
             : mask > 0 && (mask & t->classes) == 0
                 ? err_set(e, ERR_BAD_VALUE, "tenant '%s' may use none of these classes", o.tenant)
                 : 0;
    tenants_file_deinit(&tenants);
    return rc;
}

static int fill(struct key_line *k, struct err *e) {
    time_t now = time(NULL);
    struct tm tm;
    if (strlen(o.tenant) >= sizeof(k->tenant) || o.tenant[0] == '\0')
        return err_set(e, ERR_BAD_VALUE, "'%.60s' is no tenant's name", o.tenant);
    snprintf(k->tenant, sizeof(k->tenant), "%s", o.tenant);
    if (o.note != NULL && !key_note_ok(o.note))
        return err_set(e, ERR_BAD_VALUE, "--note takes up to 64 bytes of plain text without quotes");
    snprintf(k->note, sizeof(k->note), "%s", o.note != NULL ? o.note : "");
    for (unsigned i = 0; i < o.n_names; i++)
        snprintf(k->classes[i], sizeof(k->classes[i]), "%.23s", o.names[i]);
    k->n_classes = o.n_names;
    if (gmtime_r(&now, &tm) != NULL)
        strftime(k->created, sizeof(k->created), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return 0;
}

/* Under the lock, from reading to writing. `change` returns 0 to have the file written. */
static int edit(int (*change)(struct keys_file *f, void *arg, struct err *e), void *arg,
                struct err *e) {
    const char *path = o.settings.keys;
    struct keys_file f;
    int lock = keys_file_lock(path, e);
    if (lock < 0)
        return -1;
    int rc = keys_file_load(&f, path, e);
    if (rc == 0) {
        rc = change(&f, arg, e);
        if (rc == 0)
            rc = keys_file_save(&f, path, e);
        keys_file_deinit(&f);
    }
    keys_file_unlock(lock);
    return rc;
}

static int append(struct keys_file *f, void *arg, struct err *e) {
    return keys_file_add(f, arg, e);
}

static int add(struct err *e) {
    struct key_line k = {.note = ""};
    char key[API_KEY_TEXT_BYTES], id[API_KEY_ID_BYTES];
    if (o.tenant == NULL)
        return err_set(e, ERR_MISSING, "whose key? give --tenant NAME");
    if (check_names(e) != 0 || fill(&k, e) != 0)
        return -1;
    api_key_make(key);
    api_key_hash(k.hash, key, strlen(key));
    int rc = edit(append, &k, e);
    if (rc == 0) {
        api_key_id(id, k.hash);
        fprintf(stderr, "%s of tenant %s is in %s; the key is shown this once:\n", id, k.tenant,
                o.settings.keys);
        printf("%s\n", key);
        fflush(stdout);
    }
    api_key_wipe(key, sizeof(key));
    return rc;
}

static int list(struct err *e) {
    struct keys_file f;
    if (keys_file_load(&f, o.settings.keys, e) != 0)
        return -1;
    printf("%-17s %-20s %-20s %-24s %s\n", "ID", "TENANT", "CREATED", "CLASSES", "NOTE");
    for (uint32_t i = 0; i < f.n; i++) {
        const struct key_line *k = &f.rows[i];
        char id[API_KEY_ID_BYTES], classes[CLASS_LINES_MAX * (CLASS_NAME_BYTES + 1)] = "all";
        size_t n = 0;
        if (o.tenant != NULL && strcmp(o.tenant, k->tenant) != 0)
            continue;
        for (uint32_t c = 0; c < k->n_classes; c++)
            n += (size_t)snprintf(classes + n, sizeof(classes) - n, "%s%s", c > 0 ? "," : "",
                                  k->classes[c]);
        api_key_id(id, k->hash);
        printf("%-17s %-20s %-20s %-24s %s\n", id, k->tenant, k->created, classes, k->note);
    }
    keys_file_deinit(&f);
    return 0;
}

static int remove_id(struct keys_file *f, void *arg, struct err *e) {
    const char *want = arg;
    uint32_t found = 0, at = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        char id[API_KEY_ID_BYTES];
        api_key_id(id, f->rows[i].hash);
        if (strcmp(id, want) != 0)
            continue;
        found++;
        at = i;
    }
    if (found != 1)
        return err_set(e, ERR_BAD_VALUE, "%s key '%.40s' in %s; `sluice keys list` shows the ids",
                       found == 0 ? "there is no" : "there is more than one", want, o.settings.keys);
    keys_file_remove(f, at);
    return 0;
}

static int revoke(const char *id, struct err *e) {
    char name[64];
    if (id == NULL)
        return err_set(e, ERR_MISSING, "which key? `sluice keys revoke KEY_ID`");
    snprintf(name, sizeof(name), "%.60s", id);
    if (edit(remove_id, name, e) != 0)
        return -1;
    fprintf(stderr, "%s is revoked: a running gateway lets it in no more within a second\n", name);
    return 0;
}

static int run(int argc, char **argv) {
    const char *words[2] = {NULL, NULL};
    struct flags f = {.table = table, .n = FLAGS, .words = words, .words_max = 2};
    struct err e;
    memset(&o, 0, sizeof(o));
    if (take_classes(&argc, argv, &e) != 0 || flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("keys", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (f.n_words == 0)
        return command_usage("keys", "add, list or revoke? `sluice keys --help` says more");
    bool is_add = strcmp(words[0], "add") == 0, is_list = strcmp(words[0], "list") == 0;
    if (!is_add && !is_list && strcmp(words[0], "revoke") != 0)
        return command_usage("keys", "'%.40s' is not add, list or revoke", words[0]);
    if ((is_add || is_list) && f.n_words > 1)
        return command_usage("keys", "unexpected argument '%.60s'", words[1]);
    if (api_key_init(&e) != 0 || find_files(&e) != 0)
        return command_usage("keys", "%s", e.msg);
    int rc = is_add ? add(&e) : is_list ? list(&e) : revoke(f.n_words > 1 ? words[1] : NULL, &e);
    return rc == 0 ? CLI_OK : command_usage("keys", "%s", e.msg);
}

const struct command command_keys = {"keys", "make, list and revoke API keys of tenants", run, help};
