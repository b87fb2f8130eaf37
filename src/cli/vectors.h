/* What `medley embed` and `medley rerank` share: texts from the words and from a file, and a vector
 * of each by a model that is open. */
#pragma once

#include "cli/session.h"

struct texts {    /* zeroed: none */
    char **items; /* NUL-terminated */
    uint32_t count, capacity;
};
void texts_deinit(struct texts *texts);
enum error_code texts_add(struct texts *texts, const char *text, struct error *err);
/* A text a line, without the line's end; empty lines are left out. "-": standard input. */
enum error_code texts_read(struct texts *texts, const char *path, struct error *err);

/* Rows of out: [n][n_embd], each the sum of text_vector_rows(). Several texts at once, as the
 * session has slots. */
enum error_code vectors_compute(const struct session *session, const struct token_list *prompts,
                                uint32_t n, float *out, struct error *err);
