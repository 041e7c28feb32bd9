/* keys_file.h - the file of API keys: hashes, never keys. Written by `sluice keys`, read by the gateway.
 *
 *   keys:
 *     - hash: 3f0c...(64 hex digits)
 *       tenant: alice
 *       classes: [batch]
 *       created: 2026-01-31T12:00:00Z
 *       note: laptop
 *
 * hash and tenant are required; without `classes` a key may use what its tenant may. What a line refers
 * to (tenant, classes) is not checked here: the gateway lets a key of an unknown tenant in nowhere, so that
 * removing a tenant never waits for an edit of this file.
 *
 * Writing: keys_file_lock -> load -> change -> keys_file_save -> keys_file_unlock. save replaces the file
 * in one rename (mode 0600), so that a reader sees the old one or the new one. A file that is not there is
 * an empty list. Thread: any. Ownership: keys_file_deinit frees the rows. Failure: -1 and `e`.
 */
#ifndef SLUICE_CONFIG_KEYS_FILE_H
#define SLUICE_CONFIG_KEYS_FILE_H

#include "config/tenants_file.h"

#define KEYS_FILE_MAX 16384          /* keys */
#define KEYS_FILE_BYTES (8u << 20)
#define KEY_HASH_BYTES 32
#define KEY_CREATED_BYTES 32
#define KEY_NOTE_BYTES 65

struct key_line {
    uint8_t hash[KEY_HASH_BYTES];
    char tenant[TENANT_NAME_BYTES];
    char classes[CLASS_LINES_MAX][CLASS_NAME_BYTES]; uint32_t n_classes; /* 0 = all of the tenant's */
    char created[KEY_CREATED_BYTES];
    char note[KEY_NOTE_BYTES];
};

struct keys_file { struct key_line *rows; uint32_t n; };

int keys_file_load(struct keys_file *f, const char *path, struct err *e);
void keys_file_deinit(struct keys_file *f);
int keys_file_add(struct keys_file *f, const struct key_line *line, struct err *e);
void keys_file_remove(struct keys_file *f, uint32_t at);
int keys_file_save(const struct keys_file *f, const char *path, struct err *e);
/* Descriptor of PATH.lock, held exclusively (waits for another writer); -1 and `e`. */
int keys_file_lock(const char *path, struct err *e);
void keys_file_unlock(int fd);
/* May it stand in a note: printable, no quotes or backslashes? */
bool key_note_ok(const char *text);

#endif
