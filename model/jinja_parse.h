/* jinja_parse.h - template text to tree; refuses what the interpreter does not know.
 *
 * Everything that can be known without values is checked here: tags, filters, tests, methods,
 * functions and their argument counts. Messages name the construct and its line. The tree lives in
 * `r`'s arena: keep the run as long as the tree. Failure: -1 and the run's error (ERR_UNSUPPORTED
 * for a construct not known, ERR_BAD_FILE for a wrong template, ERR_TOO_LARGE over a limit).
 */
#ifndef SLUICE_MODEL_JINJA_PARSE_H
#define SLUICE_MODEL_JINJA_PARSE_H

#include "model/jinja_ast.h"

int jast_parse(struct jast *a, struct jrun *r, const char *src, size_t n);
/* The symbol of a name; UINT32_MAX when the template does not use it. */
uint32_t jast_symbol(const struct jast *a, const char *name);

#endif
