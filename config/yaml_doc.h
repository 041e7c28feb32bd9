/* yaml_doc.h - one YAML file into a struct by a libcyaml schema, with the traps of the library closed and
 * errors in words. Internal to config/.
 *
 * Every schema here carries its values as optional text (CYAML_FIELD_STRING_PTR), so that the table's own
 * parser makes values of them and files and flags obey one set of rules.
 *
 * Known traps, each tested: the library's line numbers are one event late, so errors name key and value
 * and no line; an empty file is a success without a struct; a second document is only a warning; a
 * string is cut at an escaped NUL. Aliases are refused (a file of a few bytes could unfold to gigabytes).
 * Thread: any, no shared state. Failure: -1 and `e` (ERR_BAD_FILE, ERR_NO_MEMORY) with the path in it.
 */
#ifndef SLUICE_CONFIG_YAML_DOC_H
#define SLUICE_CONFIG_YAML_DOC_H

#include "base/err.h"

#include <cyaml/cyaml.h>
#include <stddef.h>

/* *out = the loaded struct, NULL for an empty file; give it back with yaml_doc_free. `near` (may be NULL)
 * proposes a known key for an unknown one. */
int yaml_doc_load(void **out, const cyaml_schema_value_t *top, const char *path, size_t bytes_max,
                  const char *(*near)(const char *key), struct err *e);
void yaml_doc_free(const cyaml_schema_value_t *top, void *data);

#endif
