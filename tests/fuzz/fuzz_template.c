/* Fuzz target: a chat template and the messages it gets, both hostile. An input is the template, a
 * line "====", and the JSON; without that line it is the template, and the messages are usual ones.
 *
 * Holds: an error is one of the documented ones, has a text and appends nothing; what is rendered
 * is UTF-8 and the same twice. */
#include "fuzz.h"

#include "model/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const char usual[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": \"Hé 😀\"}], \"add_generation_prompt\": true}";

static bool is_utf8(const struct buffer *text)
{
    utf8proc_int32_t code_point;
    for (size_t at = 0; at < text->size;) {
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text->data + at,
                             (utf8proc_ssize_t)(text->size - at), &code_point);
        if (length <= 0)
            return false;
        at += (size_t)length;
    }
    return true;
}

static bool is_told(enum error_code code, const struct error *err)
{
    return (code == ERROR_INVALID || code == ERROR_BUSY) && code == err->code &&
           strncmp(err->text, "chat template: ", 15) == 0;
}

static void render(struct chat_template *chat_template, const char *json, size_t size,
                   struct buffer *out)
{
    struct error err = {0};
    enum error_code code = chat_template_render(chat_template, json, size, out, &err);
    FUZZ_CHECK(!code || (is_told(code, &err) && out->size == 0));
    FUZZ_CHECK(is_utf8(out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char line[] = "\n====\n";
    const uint8_t *split = size ? memmem(data, size, line, sizeof line - 1) : NULL;
    size_t source_size = split ? (size_t)(split - data) : size;
    const char *json = split ? (const char *)split + sizeof line - 1 : usual;
    size_t json_size = split ? size - source_size - (sizeof line - 1) : sizeof usual - 1;

    struct chat_template *chat_template = NULL;
    struct error err = {0};
    enum error_code code =
        chat_template_open((const char *)data, source_size, "<s>", "</s>", &chat_template, &err);
    FUZZ_CHECK(code ? is_told(code, &err) && !chat_template : chat_template != NULL);
    if (code)
        return 0;
    struct buffer once = {0}, twice = {0};
    render(chat_template, json, json_size, &once);
    render(chat_template, json, json_size, &twice);
    bool clock = source_size && memmem(data, source_size, "strftime", 8);
    FUZZ_CHECK(clock || (once.size == twice.size &&
                         (!once.size || memcmp(once.data, twice.data, once.size) == 0)));
    buffer_deinit(&once);
    buffer_deinit(&twice);
    chat_template_close(chat_template);
    return 0;
}
