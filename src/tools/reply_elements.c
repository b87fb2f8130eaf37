/* A call as XML-like elements: arguments become JSON. A value is a text where the tool's schema
 * says so, or where it is no JSON. */
#include "tools/reply_impl.h"

#include <string.h>

void reply_elements_begin(struct reply_reader *reply)
{
    reply->n_arguments = 0;
    reply->arguments_told = false;
    reply->scanned = 0;
    reply->state = REPLY_IN_ELEMENTS_NAME;
}

/* Uses white space; where it must be content again, it is kept. */
static void elements_skip_space(struct reply_reader *reply)
{
    const size_t left = reply_left(reply);
    const char *rest = reply_rest(reply);
    reply_use_space(reply);
    if (!reply->announced)
        buffer_append(&reply->raw, rest, left - reply_left(reply));
}

/* A name without marks around it ends before white space or a mark. */
static size_t bare_name_size(const struct reply_reader *reply)
{
    const char *rest = reply_rest(reply);
    size_t n = 0;
    while (n < reply_left(reply) && !reply_is_space(rest[n]) && rest[n] != '<')
        n++;
    return n;
}

/* A name or a key, whose entities may stand for quotes. */
static void elements_append(const struct reply_reader *reply, const char *text, size_t size,
                            struct buffer *out)
{
    static const char *const entities[][2] = {{"&quot;", "\""}, {"&amp;", "&"}};
    for (size_t at = 0; at < size;) {
        size_t used = 1;
        const char *byte = text + at;
        for (int i = 0; i < 2 && reply->format->elements->has_entities; i++) {
            const size_t n = strlen(entities[i][0]);
            if (size - at >= n && memcmp(text + at, entities[i][0], n) == 0) {
                used = n;
                byte = entities[i][1];
            }
        }
        buffer_append(out, byte, 1);
        at += used;
    }
}

static void elements_take_name(struct reply_reader *reply, const char *text, size_t size,
                               size_t used)
{
    elements_append(reply, text, size, &reply->name);
    buffer_append(&reply->raw, reply_rest(reply), used);
    reply_use(reply, used);
    reply->scanned = 0;
    if (!reply->name.size || size > LIMIT_TOOL_NAME_BYTES) {
        reply_no_call(reply);
        return;
    }
    reply->state = REPLY_IN_ELEMENTS;
    reply_announce(reply);
}

/* Where the opening of an element ends whose name or key ends at `from`. 0: not in what is there.
 */
static size_t elements_opening_end(const struct reply_reader *reply, size_t from)
{
    const char *mark = reply->format->elements->attributes_end;
    const size_t size = mark ? strlen(mark) : 0, left = reply_left(reply);
    const size_t last = left < from + LIMIT_TOOL_NAME_BYTES ? left : from + LIMIT_TOOL_NAME_BYTES;
    while (from + size <= last && size && memcmp(reply_rest(reply) + from, mark, size) != 0)
        from++;
    return from + size <= last ? from + size : 0;
}

static bool elements_may_go_on(const struct reply_reader *reply, size_t from)
{
    return !reply->final && reply_left(reply) <= from + LIMIT_TOOL_NAME_BYTES;
}

static bool elements_bare_name(struct reply_reader *reply)
{
    const size_t size = bare_name_size(reply);
    if (size == reply_left(reply) && size <= LIMIT_TOOL_NAME_BYTES && !reply->final)
        return false;
    if (size == reply_left(reply))
        reply_no_call(reply);
    else
        elements_take_name(reply, reply_rest(reply), size, size);
    return true;
}

static bool elements_name_step(struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    elements_skip_space(reply);
    if (!elements->name_open[0])
        return elements_bare_name(reply);
    const size_t open = strlen(elements->name_open);
    const enum mark_start start = reply_starts(reply, elements->name_open);
    if (start == MARK_MAY_COME)
        return false;
    if (start == MARK_IS_NOT_THERE) {
        reply_no_call(reply);
        return true;
    }
    reply->scanned = open; /* the opening may have the mark that ends it */
    const struct mark_place end = reply_find(reply, &elements->name_close, 1);
    const size_t used =
        end.which < 0 ? 0 : elements_opening_end(reply, end.at + strlen(elements->name_close));
    if (!used && elements_may_go_on(reply, end.which < 0 ? open : end.at))
        return false;
    if (used)
        elements_take_name(reply, reply_rest(reply) + open, end.at - open, used);
    else
        reply_no_call(reply);
    return true;
}

static void elements_over(struct reply_reader *reply)
{
    const char *end = reply->arguments_told ? "" : reply->n_arguments ? "}" : "{}";
    reply_tell(reply, REPLY_ARGUMENTS, end, strlen(end));
    reply->scanned = 0;
    reply_call_over(reply);
}

/* All arguments as JSON, where an element says so and none came before. */
static enum mark_start elements_json(struct reply_reader *reply)
{
    const char *mark = reply->format->elements->json_open;
    if (!mark || reply->n_arguments || reply->arguments_told)
        return MARK_IS_NOT_THERE;
    const enum mark_start start = reply_starts(reply, mark);
    if (start != MARK_IS_THERE)
        return start;
    const size_t used = elements_opening_end(reply, strlen(mark));
    if (!used)
        return elements_may_go_on(reply, strlen(mark)) ? MARK_MAY_COME : MARK_IS_NOT_THERE;
    reply_use(reply, used);
    reply->scanned = 0;
    reply->arguments_told = true;
    reply->state = REPLY_IN_ELEMENTS_JSON;
    return MARK_IS_THERE;
}

static bool elements_json_step(struct reply_reader *reply)
{
    const struct mark_place end = reply_find(reply, &reply->format->elements->json_close, 1);
    reply_tell(reply, REPLY_ARGUMENTS, reply_rest(reply), end.at);
    reply_use(reply, end.at);
    reply->scanned = 0;
    if (end.which < 0)
        return end.at;
    reply_use(reply, strlen(reply->format->elements->json_close));
    reply->state = REPLY_IN_ELEMENTS;
    return true;
}

/* Behind a name that no mark opens one may stand. */
static enum mark_start elements_name_closes(struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    const char *mark = elements->name_close;
    if (elements->name_open[0] || !mark[0] || reply->n_arguments)
        return MARK_IS_NOT_THERE;
    const enum mark_start start = reply_starts(reply, mark);
    if (start == MARK_IS_THERE)
        reply_use(reply, strlen(mark));
    return start;
}

static enum mark_start elements_key_starts(const struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    const size_t open = strlen(elements->key_open);
    const enum mark_start start =
        reply->arguments_told ? MARK_IS_NOT_THERE : reply_starts(reply, elements->key_open);
    const bool closes = start == MARK_IS_THERE && elements->closed_by_key &&
                        reply_left(reply) > open && reply_rest(reply)[open] == '/';
    return closes ? MARK_IS_NOT_THERE : start;
}

/* The next argument, or the end of them. Anything else ends the call too: it is read as content. */
static bool elements_next_step(struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    reply_use_space(reply);
    if (!reply_left(reply)) {
        if (reply->final)
            reply_call_over(reply);
        return reply->final;
    }
    const enum mark_start json = elements_json(reply);
    const enum mark_start name = elements_name_closes(reply);
    if (json == MARK_IS_THERE || name == MARK_IS_THERE)
        return true;
    const enum mark_start close = reply_starts(reply, elements->close);
    const enum mark_start key = elements_key_starts(reply);
    if (close == MARK_IS_THERE) {
        reply_use(reply, strlen(elements->close));
    } else if (json == MARK_MAY_COME || name == MARK_MAY_COME || key == MARK_MAY_COME ||
               close == MARK_MAY_COME) {
        return false;
    } else if (key == MARK_IS_THERE) {
        reply_use(reply, strlen(elements->key_open));
        reply->scanned = 0;
        buffer_clear(&reply->key);
        reply->state = REPLY_IN_ELEMENT_KEY;
        return true;
    }
    elements_over(reply);
    return true;
}

/* Whether the value is a text: so say its attributes, `size` bytes, or its tool's schema. */
static bool elements_value_is_text(const struct reply_reader *reply, const char *attributes,
                                   size_t size)
{
    const char *sign = reply->format->elements->text_attribute;
    const struct buffer *key = &reply->key, *name = &reply->name;
    const size_t length = sign ? strlen(sign) : 0;
    if (!sign || !memchr(attributes, '=', size))
        return reply->tools.takes_text &&
               reply->tools.takes_text(reply->tools.self, name->data, name->size,
                                       key->data ? key->data : "", key->size);
    for (size_t i = 0; i + length <= size; i++) {
        if (memcmp(attributes + i, sign, length) == 0)
            return true;
    }
    return false;
}

/* What ends a value. */
static const char *elements_value_end(struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    if (!elements->closed_by_key)
        return elements->value_close;
    buffer_clear(&reply->value_end);
    buffer_text(&reply->value_end, elements->value_close);
    buffer_append(&reply->value_end, reply->key.data, reply->key.size);
    buffer_text(&reply->value_end, elements->key_close);
    return reply->value_end.failed ? elements->value_close : reply->value_end.data;
}

static void elements_begin_value(struct reply_reader *reply)
{
    struct buffer json = {0};
    buffer_text(&json, reply->n_arguments++ ? ", \"" : "{\"");
    reply_escape(&json, reply->key.data, reply->key.size);
    buffer_text(&json, reply->value_is_text ? "\": \"" : "\": ");
    reply->failed |= json.failed;
    reply_tell(reply, REPLY_ARGUMENTS, json.data, json.size);
    buffer_deinit(&json);
    reply->scanned = 0;
    reply->value_begun = false;
    reply->state = REPLY_IN_ELEMENT_VALUE;
}

/* The key's text, and the mark that opens its value. */
static bool elements_key_step(struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    const struct mark_place end = reply_find(reply, &elements->key_close, 1);
    if (end.which < 0) {
        reply->scanned = end.at;
        if (reply->final)
            reply_call_over(reply); /* what is left of the key is content */
        return reply->final;
    }
    const size_t from = end.at + strlen(elements->key_close);
    size_t used = elements_opening_end(reply, from);
    if (!used) {
        const bool waits = elements_may_go_on(reply, from);
        if (!waits)
            reply_call_over(reply);
        return !waits;
    }
    const size_t n_attributes = used - from;
    const size_t open = strlen(elements->value_open);
    if (open) {
        const char *rest = reply_rest(reply);
        while (used < reply_left(reply) && reply_is_space(rest[used]))
            used++;
        if (reply_left(reply) - used < open && !reply->final)
            return false;
        if (reply_left(reply) - used >= open &&
            memcmp(rest + used, elements->value_open, open) == 0)
            used += open;
    }
    elements_append(reply, reply_rest(reply), end.at, &reply->key);
    reply->value_is_text = elements_value_is_text(reply, reply_rest(reply) + from, n_attributes);
    reply_use(reply, used);
    elements_begin_value(reply);
    return true;
}

/* A value's first line feed and its last belong to the elements, in formats that write it on lines
 * of its own. False: it may still come. */
static bool elements_open_value(struct reply_reader *reply)
{
    if (!reply->value_begun && reply->format->elements->value_on_lines) {
        if (!reply_left(reply) && !reply->final)
            return false;
        if (reply_left(reply) && reply_rest(reply)[0] == '\n')
            reply_use(reply, 1);
    }
    reply->value_begun = true;
    return true;
}

static bool elements_value_step(struct reply_reader *reply)
{
    const struct tool_elements *elements = reply->format->elements;
    if (!elements_open_value(reply))
        return false;
    const char *const mark = elements_value_end(reply);
    const struct mark_place end = reply_find(reply, &mark, 1);
    const char *rest = reply_rest(reply);
    size_t size = end.at;
    if (elements->value_on_lines && size && rest[size - 1] == '\n')
        size--;
    reply->scanned = end.at;
    if (end.which < 0 && !reply->final && !reply->value_is_text)
        return false;
    if (reply->value_is_text || end.which < 0)
        reply_tell_text(reply, rest, size);
    else
        reply_tell_value(reply, rest, size);
    if (end.which < 0) {
        reply_use(reply, reply->final ? end.at : size);
        return size;
    }
    if (reply->value_is_text)
        reply_tell(reply, REPLY_ARGUMENTS, "\"", 1);
    reply_use(reply, end.at + strlen(mark));
    reply->scanned = 0;
    reply->state = REPLY_IN_ELEMENTS;
    return true;
}

bool reply_elements_step(struct reply_reader *reply)
{
    switch ((int)reply->state) {
    case REPLY_IN_ELEMENTS_NAME:
        return elements_name_step(reply);
    case REPLY_IN_ELEMENT_KEY:
        return elements_key_step(reply);
    case REPLY_IN_ELEMENT_VALUE:
        return elements_value_step(reply);
    case REPLY_IN_ELEMENTS_JSON:
        return elements_json_step(reply);
    default:
        return elements_next_step(reply);
    }
}
