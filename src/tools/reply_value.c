/* Values of arguments that a model does not write as JSON, told as JSON. */
#include "tools/reply_impl.h"

#include <string.h>
#include <yyjson.h>

void reply_escape(struct buffer *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (byte == '"' || byte == '\\')
            buffer_printf(out, "\\%c", byte);
        else if (byte == '\n')
            buffer_text(out, "\\n");
        else if (byte < 0x20)
            buffer_printf(out, "\\u%04x", byte);
        else
            buffer_append(out, text + i, 1);
    }
}

static void value_tell(struct reply_reader *reply, struct buffer *json)
{
    reply->failed |= json->failed;
    if (!json->failed)
        reply_tell(reply, REPLY_ARGUMENTS, json->data, json->size);
    buffer_deinit(json);
}

void reply_tell_text(struct reply_reader *reply, const char *text, size_t size)
{
    struct buffer json = {0};
    reply_escape(&json, text, size);
    value_tell(reply, &json);
}

static bool value_is_json(const char *text, size_t size)
{
    yyjson_doc *doc = size ? yyjson_read(text, size, 0) : NULL;
    yyjson_doc_free(doc);
    return doc != NULL;
}

/* What Python calls a value, as templates write it. */
static const char *value_word(const char *text, size_t size)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i][0]) == size && memcmp(words[i][0], text, size) == 0)
            return words[i][1];
    }
    return NULL;
}

void reply_tell_value(struct reply_reader *reply, const char *text, size_t size)
{
    struct buffer json = {0};
    const char *word = value_word(text, size);
    if (word) {
        buffer_text(&json, word);
    } else if (value_is_json(text, size)) {
        buffer_append(&json, text, size);
    } else {
        buffer_text(&json, "\"");
        reply_escape(&json, text, size);
        buffer_text(&json, "\"");
    }
    value_tell(reply, &json);
}
