/* Chat messages to a prompt, by the model's own Jinja template.
 *
 * The template is untrusted input: it runs in a QuickJS interpreter of its own, in a process of its
 * own where chat_template_isolate() says so, with
 * @huggingface/jinja, without any access to files, network or clock (strftime_now excepted), under
 * the memory and time limits of base/limits.h (time of the processor). It sees what transformers
 * gives a template: trim_blocks and lstrip_blocks are on, loop controls, raise_exception,
 * strftime_now, tojson, bos_token, eos_token; tools and documents are none and
 * add_generation_prompt is false unless given. Numbers are JavaScript's: 1.0 renders as 1, integers
 * are exact to 2^53, and in an object keys that look like integers come first.
 *
 * A model without a template gets a plain rendering, and chat_template_is_fallback() says so:
 * a line "role: content" per message, then "assistant:" for the generation prompt.
 *
 * One thread at a time per object, not always the same one. Opening and rendering each run on a
 * short-lived thread of their own, so any stack will do; the caller waits. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct chat_template;
struct gguf_file;
struct tokenizer;

/* For the first lines of a main(): when this process was started to run a template, is that and
 * never returns. */
void chat_template_main(int argc, char **argv);
/* Templates that are opened from now on each run in a process of their own, in a sandbox
 * (chat_template_process.h): `program`, whose main() begins with chat_template_main(), is started
 * for them. It lives on; NULL: in this process. Before threads start. */
void chat_template_isolate(const char *program);

/* `source` is tokenizer.chat_template, or NULL for the fallback. bos/eos are the texts of those
 * tokens ("" or NULL when there are none), which templates may use. All are copied. A template that
 * does not parse, is not UTF-8 or is larger than LIMIT_TEMPLATE_BYTES is ERROR_INVALID with the
 * reason; one that reaches a limit while it is parsed, ERROR_BUSY. */
enum error_code chat_template_open(const char *source, size_t source_size, const char *bos_text,
                                   const char *eos_text, struct chat_template **out,
                                   struct error *err);
/* The same with a model's own template and texts; the fallback when it has no template. */
enum error_code chat_template_open_model(const struct gguf_file *file,
                                         const struct tokenizer *tokenizer,
                                         struct chat_template **out, struct error *err);
void chat_template_close(struct chat_template *chat_template);
bool chat_template_is_fallback(const struct chat_template *chat_template);
/* The template itself, as long as it is open; NULL: the fallback. */
const char *chat_template_text(const struct chat_template *chat_template, size_t *size);
pid_t chat_template_pid(const struct chat_template *chat_template); /* for tests; 0: none */

/* Renders `input_json`, a JSON object {"messages": […], "tools": […]?, "add_generation_prompt":
 * bool, …}: its members are the template's variables. Appends UTF-8 to `out`; on an error nothing
 * is appended. ERROR_INVALID: the template refused (raise_exception) or the input is wrong.
 * ERROR_BUSY: a limit. ERROR_IO: its process has ended, or took too long. The object can be used
 * again after any error. */
enum error_code chat_template_render(struct chat_template *chat_template, const char *input_json,
                                     size_t input_size, struct buffer *out, struct error *err);
