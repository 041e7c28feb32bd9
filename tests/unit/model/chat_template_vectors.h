/* chat_template_vectors.h - templates and what they must render to, for test_chat_template.c. */
#ifndef SLUICE_TESTS_CHAT_TEMPLATE_VECTORS_H
#define SLUICE_TESTS_CHAT_TEMPLATE_VECTORS_H

#include <stddef.h>

struct chat_vector { const char *source, *want; };

extern const char chat_vector_messages[], chat_vector_extra[]; /* JSON, the same for all */
extern const struct chat_vector chat_vectors_space[]; /* white space control */
extern const struct chat_vector chat_vectors_expr[];  /* one expression each */
extern const struct chat_vector chat_vectors_stmt[];  /* tags, and templates of model families */
extern const size_t chat_vectors_space_n, chat_vectors_expr_n, chat_vectors_stmt_n;

#endif
