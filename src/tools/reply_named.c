/* A call as a name, a mark, and the arguments as a JSON object. */
#include "tools/reply_impl.h"

#include <string.h>

static bool name_has_byte(const char *text, size_t size, char byte)
{
    return memchr(text, byte, size) != NULL;
}

/* "functions.get_weather:3": the model's own name of the call; the tool's is in the middle. */
static void name_without_prefix(struct reply_reader *reply)
{
    const char *prefix = reply->format->prefix;
    const size_t size = prefix ? strlen(prefix) : 0;
    struct buffer *name = &reply->name;
    if (!prefix)
        return;
    buffer_append(&reply->id, name->data, name->size);
    if (name->size > size && memcmp(name->data, prefix, size) == 0)
        buffer_drop_front(name, size);
    for (size_t i = name->size; i-- > 1;) {
        if (name->data[i] == ':' && i + 1 < name->size) {
            name->size = i;
            name->data[i] = 0;
        } else if (name->data[i] < '0' || name->data[i] > '9') {
            break;
        }
    }
}

static void name_take(struct reply_reader *reply, const char *text, size_t size)
{
    static const char id_mark[] = "[CALL_ID]";
    const size_t mark = sizeof id_mark - 1;
    while (size && reply_is_space(text[size - 1]))
        size--;
    for (size_t i = 0; i + mark <= size; i++) {
        if (memcmp(text + i, id_mark, mark) == 0) {
            buffer_append(&reply->id, text + i + mark, size - i - mark);
            size = i;
        }
    }
    buffer_append(&reply->name, text, size);
    if (!reply->name.failed && reply->name.size)
        name_without_prefix(reply);
}

/* The name's place holds a type, and the name stands on the line after it: 0 while it may still
 * come. */
static size_t name_after_type(struct reply_reader *reply, size_t from, size_t *size)
{
    const char *rest = reply_rest(reply), *end;
    end = memchr(rest + from, '\n', reply_left(reply) - from);
    *size = end ? (size_t)(end - rest) - from : 0;
    return end ? (size_t)(end - rest) + 1 : 0;
}

static bool name_cannot_be(const struct reply_reader *reply, size_t size)
{
    return size > LIMIT_TOOL_NAME_BYTES || name_has_byte(reply_rest(reply), size, '\n') ||
           name_has_byte(reply_rest(reply), size, '{');
}

bool reply_name_step(struct reply_reader *reply)
{
    const struct tool_format *format = reply->format;
    const char *rest = reply_rest(reply);
    const struct mark_place found = reply_find(reply, format->separator, TOOL_MARKS_MAX);
    if (name_cannot_be(reply, found.at) || (found.which < 0 && reply->final)) {
        reply_no_call(reply);
        return true;
    }
    if (found.which < 0)
        return false;
    size_t size = found.at, from = 0, used = found.at + strlen(format->separator[found.which]);
    if (format->type && size == strlen(format->type) && memcmp(rest, format->type, size) == 0) {
        from = used;
        used = name_after_type(reply, from, &size);
        if (!used && (reply->final || reply_left(reply) - from > LIMIT_TOOL_NAME_BYTES))
            reply_no_call(reply);
        if (!used)
            return reply->state != REPLY_IN_NAME;
    }
    name_take(reply, rest + from, size);
    buffer_append(&reply->raw, rest, used);
    reply_use(reply, used);
    json_place_init(&reply->json.place);
    reply->state = REPLY_IN_VALUE;
    if (!reply->name.size || (format->asks_name && !reply_is_tool(reply)))
        reply_no_call(reply);
    return true;
}

/* The bracket that begins the arguments, perhaps after "```json". False: it may still come. */
static bool value_begins(struct reply_reader *reply)
{
    static const char fence[] = "```json";
    const char *rest = reply_rest(reply);
    const enum mark_start fenced = reply_starts(reply, fence);
    const size_t size = fenced == MARK_IS_THERE                        ? sizeof fence - 1
                        : reply_left(reply) && reply_is_space(rest[0]) ? 1
                                                                       : 0;
    if (size) {
        buffer_append(&reply->raw, rest, size);
        reply_use(reply, size);
        return true;
    }
    if (reply_left(reply) && rest[0] == '{') {
        reply_announce(reply);
        return true;
    }
    if (!reply->final && (!reply_left(reply) || fenced == MARK_MAY_COME))
        return false;
    reply_no_call(reply);
    return true;
}

bool reply_value_step(struct reply_reader *reply)
{
    const char *rest = reply_rest(reply);
    const size_t left = reply_left(reply);
    size_t n = 0;
    bool ends = false;
    if (!reply->announced)
        return value_begins(reply);
    while (n < left && !ends)
        ends = json_place_ends(&reply->json.place, rest[n++]);
    reply_tell(reply, REPLY_ARGUMENTS, rest, n);
    reply_use(reply, n);
    if (ends || reply->final)
        reply_call_over(reply);
    return n || ends || reply->final;
}
