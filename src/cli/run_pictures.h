/* Pictures of `medley run --image`: read, and put in front of the prompt. */
#pragma once

#include "base/limits.h"
#include "cli/session_sight.h"

struct buffer;

struct run_pictures { /* zeroed: none */
    const char *files[LIMIT_PROMPT_PICTURES];
    uint32_t n;
    struct prompt_picture *pictures[LIMIT_PROMPT_PICTURES];
    struct request_picture at[LIMIT_PROMPT_PICTURES];
};

/* The marks of all, then the text: a message that a chat template renders. */
void run_pictures_mark(const struct run_pictures *shown, const char *text, size_t size,
                       struct buffer *out);
/* Looks at the files, and encodes the text with their marks; fills `at`. */
enum error_code run_pictures_encode(struct run_pictures *shown, const struct session *session,
                                    const char *text, size_t size, struct token_list *out,
                                    struct error *err);
void run_pictures_deinit(struct run_pictures *shown);
