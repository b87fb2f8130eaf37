/* Chat messages to a prompt, by the model's own Jinja template.
 *
 * The template is untrusted input: it runs in a QuickJS interpreter of its own, with
 * @huggingface/jinja, without any access to files, network or clock (strftime_now excepted),
 * under the memory and time limits of base/limits.h. A model without a template gets a
 * plain "role: content" rendering, and chat_template_is_fallback() says so.
 *
 * One thread at a time per object. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_template;

/* `source` is tokenizer.chat_template, or NULL for the fallback. bos/eos are the texts of
 * those tokens ("" when there are none), which templates may use. A template that does
 * not parse is ERROR_INVALID with Jinja's message. */
enum error_code chat_template_open(const char *source, size_t source_size, const char *bos_text, const char *eos_text,
                                   struct chat_template **out, struct error *err);
void chat_template_close(struct chat_template *chat_template);
bool chat_template_is_fallback(const struct chat_template *chat_template);

/* Renders `input_json`, a JSON object {"messages": […], "tools": […]?, "add_generation_prompt": bool, …}: its members are the
 * template's variables. ERROR_INVALID: the template refused (raise_exception) or the input is wrong. ERROR_BUSY: a limit. */
enum error_code chat_template_render(struct chat_template *chat_template, const char *input_json, size_t input_size,
                                     struct buffer *out, struct error *err);
