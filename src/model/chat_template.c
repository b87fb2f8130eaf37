#include "model/chat_template.h"

#include "base/json_memory.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/chat_template_jinja.h"
#include "model/chat_template_process.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"

#include <string.h>
#include <utf8proc.h>

/* Both NULL: the fallback. */
struct chat_template {
    struct jinja *jinja;
    struct template_process *process;
    char *source; /* NULL: the fallback */
    size_t source_size;
};

static const char *isolating_program; /* NULL: in this process */

void chat_template_isolate(const char *program)
{
    isolating_program = program;
}

static bool chat_template_is_utf8(const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t code_point;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                   (utf8proc_ssize_t)(size - at), &code_point);
        if (length <= 0)
            return false;
        at += (size_t)length;
    }
    return true;
}

static enum error_code open_jinja(const char *source, size_t size, const char *bos_text,
                                  const char *eos_text, struct chat_template *out,
                                  struct error *err)
{
    bos_text = bos_text ? bos_text : "";
    eos_text = eos_text ? eos_text : "";
    if (size > LIMIT_TEMPLATE_BYTES)
        return error_set(err, ERROR_INVALID, "has %zu bytes, more than %d", size,
                         LIMIT_TEMPLATE_BYTES);
    if (!chat_template_is_utf8(source, size))
        return error_set(err, ERROR_INVALID, "is not UTF-8");
    if (isolating_program)
        return template_process_open(isolating_program, LIMIT_TEMPLATE_PROCESS_MS, source, size,
                                     bos_text, eos_text, &out->process, err);
    return jinja_open(source, size, bos_text, eos_text, &out->jinja, err);
}

enum error_code chat_template_open(const char *source, size_t source_size, const char *bos_text,
                                   const char *eos_text, struct chat_template **out,
                                   struct error *err)
{
    *out = NULL;
    struct chat_template *chat_template = mem_new(sizeof *chat_template);
    if (!chat_template)
        return error_set(err, ERROR_NO_MEMORY, "chat template: not enough memory");
    enum error_code code = ERROR_NONE;
    if (source)
        code = open_jinja(source, source_size, bos_text, eos_text, chat_template, err);
    if (!code && source) {
        chat_template->source = mem_copy_text(source, source_size);
        chat_template->source_size = source_size;
        if (!chat_template->source)
            code = error_set(err, ERROR_NO_MEMORY, "not enough memory");
    }
    if (code) {
        chat_template_close(chat_template);
        error_wrap(err, "chat template");
        return code;
    }
    *out = chat_template;
    return ERROR_NONE;
}

enum error_code chat_template_open_model(const struct gguf_file *file,
                                         const struct tokenizer *tokenizer,
                                         struct chat_template **out, struct error *err)
{
    static const char key[] = "tokenizer.chat_template";
    const char *source = NULL;
    size_t size = 0;
    *out = NULL;
    if (gguf_file_has(file, key)) {
        enum error_code code = gguf_file_text(file, key, &source, &size, err);
        if (code)
            return code;
    }
    struct buffer bos = {0}, eos = {0};
    buffer_text(&bos, "");
    buffer_text(&eos, "");
    tokenizer_piece(tokenizer, tokenizer_bos(tokenizer), true, &bos);
    tokenizer_piece(tokenizer, tokenizer_eos(tokenizer), true, &eos);
    enum error_code code = bos.failed || eos.failed
                               ? error_set(err, ERROR_NO_MEMORY, "chat template: not enough memory")
                               : chat_template_open(source, size, bos.data, eos.data, out, err);
    buffer_deinit(&bos);
    buffer_deinit(&eos);
    return code;
}

void chat_template_close(struct chat_template *chat_template)
{
    if (!chat_template)
        return;
    jinja_close(chat_template->jinja);
    template_process_close(chat_template->process);
    mem_free(chat_template->source);
    mem_free(chat_template);
}

bool chat_template_is_fallback(const struct chat_template *chat_template)
{
    return !chat_template->jinja && !chat_template->process;
}

const char *chat_template_text(const struct chat_template *chat_template, size_t *size)
{
    *size = chat_template->source_size;
    return chat_template->source;
}

pid_t chat_template_pid(const struct chat_template *chat_template)
{
    return chat_template->process ? template_process_pid(chat_template->process) : 0;
}

/* ---- the fallback ---- */

/* A content is a text, null, or parts as in OpenAI's API, of which only texts can be rendered. */
static bool append_content(struct buffer *out, yyjson_val *content)
{
    if (!content || yyjson_is_null(content))
        return true;
    if (yyjson_is_str(content)) {
        buffer_append(out, yyjson_get_str(content), yyjson_get_len(content));
        return true;
    }
    size_t index, count;
    yyjson_val *part;
    yyjson_arr_foreach(content, index, count, part)
    {
        yyjson_val *text = yyjson_obj_get(part, "text");
        if (!yyjson_is_str(text))
            return false;
        buffer_append(out, yyjson_get_str(text), yyjson_get_len(text));
    }
    return yyjson_is_arr(content);
}

static enum error_code render_plain(yyjson_val *root, struct buffer *out, struct error *err)
{
    size_t index, count;
    yyjson_val *message;
    yyjson_arr_foreach(yyjson_obj_get(root, "messages"), index, count, message)
    {
        yyjson_val *role = yyjson_obj_get(message, "role");
        if (!yyjson_is_str(role))
            return error_set(err, ERROR_INVALID, "messages[%zu]: no role", index);
        buffer_append(out, yyjson_get_str(role), yyjson_get_len(role));
        buffer_text(out, ": ");
        if (!append_content(out, yyjson_obj_get(message, "content")))
            return error_set(err, ERROR_INVALID, "messages[%zu]: its content is not text", index);
        buffer_text(out, "\n");
    }
    if (yyjson_is_true(yyjson_obj_get(root, "add_generation_prompt")))
        buffer_text(out, "assistant:");
    return out->failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the text")
                       : ERROR_NONE;
}

/* ---- the input ---- */

/* Stricter than QuickJS's own parser: UTF-8 and surrogate pairs must be whole, and an error has a
 * place. */
static enum error_code parse_input(char *text, size_t size, yyjson_doc **out, struct error *err)
{
    yyjson_read_err why;
    *out = yyjson_read_opts(text, size, YYJSON_READ_NOFLAG, &json_memory, &why);
    if (!*out && why.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %zu bytes of messages", size);
    if (!*out)
        return error_set(err, ERROR_INVALID, "the messages are not JSON: %s at byte %zu", why.msg,
                         why.pos);
    if (!yyjson_is_arr(yyjson_obj_get(yyjson_doc_get_root(*out), "messages")))
        return error_set(err, ERROR_INVALID,
                         "the input is not a JSON object with an array \"messages\"");
    return ERROR_NONE;
}

enum error_code chat_template_render(struct chat_template *chat_template, const char *input_json,
                                     size_t input_size, struct buffer *out, struct error *err)
{
    size_t before = out->size;
    yyjson_doc *document = NULL;
    enum error_code code;
    /* QuickJS wants a NUL after the text. */
    char *text =
        input_size <= LIMIT_TEMPLATE_OUTPUT_BYTES ? mem_copy_text(input_json, input_size) : NULL;
    if (input_size > LIMIT_TEMPLATE_OUTPUT_BYTES)
        code = error_set(err, ERROR_BUSY, "%zu bytes of messages, more than %d", input_size,
                         LIMIT_TEMPLATE_OUTPUT_BYTES);
    else if (!text)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for %zu bytes of messages",
                         input_size);
    else
        code = parse_input(text, input_size, &document, err);

    if (!code && chat_template->process)
        code = template_process_render(chat_template->process, text, input_size, out, err);
    else if (!code && chat_template->jinja)
        code = jinja_render(chat_template->jinja, text, input_size, out, err);
    else if (!code)
        code = render_plain(yyjson_doc_get_root(document), out, err);
    yyjson_doc_free(document);
    mem_free(text);
    if (code) {
        out->size = out->size > before ? before : out->size;
        if (out->data)
            out->data[out->size] = '\0';
        error_wrap(err, "chat template");
    }
    return code;
}
