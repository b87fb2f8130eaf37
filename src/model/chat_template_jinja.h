/* A Jinja template and its interpreter: QuickJS with @huggingface/jinja and chat_template.js,
 * within the bounds of chat_template_interpreter.h. Whoever reaches one gets ERROR_BUSY, and the
 * interpreter is made anew by the next call.
 *
 * One thread at a time per object; each call makes a thread of its own and waits for it. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>

struct jinja;

/* `source` is UTF-8; it and the texts are copied. */
enum error_code jinja_open(const char *source, size_t size, const char *bos_text,
                           const char *eos_text, struct jinja **out, struct error *err);
void jinja_close(struct jinja *jinja);

/* `json` is one JSON object, checked already, with a NUL after its `size` bytes. Appends to `out`;
 * after an error what was appended is undefined. */
enum error_code jinja_render(struct jinja *jinja, const char *json, size_t size, struct buffer *out,
                             struct error *err);
