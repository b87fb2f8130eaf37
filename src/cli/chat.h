/* The conversation of `medley run` without -p. */
#pragma once

#include "cli/reply.h"

/* The prompt of a conversation: `messages_json` is the list of messages; appends the tokens. */
struct chat;
enum error_code chat_open(struct session *session, const char *system, struct chat **out,
                          struct error *err);
void chat_close(struct chat *chat);
/* Adds a message; the text need not end with a NUL. ERROR_INVALID when it is not UTF-8. */
enum error_code chat_add(struct chat *chat, const char *role, const char *text, size_t size,
                         struct error *err);
void chat_drop_last(struct chat *chat);
void chat_reset(struct chat *chat); /* back to the system message alone */
enum error_code chat_prompt(struct chat *chat, struct token_list *out, struct error *err);
/* The same as text; appends. */
enum error_code chat_render(struct chat *chat, struct buffer *text, struct error *err);

/* Reads lines from stdin, each a message, and answers until the end of input, /exit or two
 * Ctrl-C. */
int chat_run(const struct command *command, struct chat *chat, const struct reply_options *options);
