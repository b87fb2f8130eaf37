/* A Jinja template inside its interpreter: QuickJS with @huggingface/jinja and chat_template.js.
 *
 * The interpreter has no way out: no files, no network, no Date; only strftime_now() asks the
 * clock. It gets LIMIT_TEMPLATE_MEMORY_BYTES of memory, LIMIT_TEMPLATE_MS for each call below and
 * JINJA_STACK_BYTES of the calling thread's stack. Whoever reaches a limit gets ERROR_BUSY, and the
 * interpreter is thrown away and made anew by the next call.
 *
 * One thread at a time per object, not always the same one. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>

/* A caller's thread needs this and 128 KiB for what QuickJS does not count. */
enum { JINJA_STACK_BYTES = 384 * 1024 };

struct jinja;

/* `source` is UTF-8; it and the texts are copied. */
enum error_code jinja_open(const char *source, size_t size, const char *bos_text, const char *eos_text,
                           struct jinja **out, struct error *err);
void jinja_close(struct jinja *jinja);

/* `json` is one JSON object, checked already. */
enum error_code jinja_render(struct jinja *jinja, const char *json, size_t size, struct buffer *out,
                             struct error *err);
