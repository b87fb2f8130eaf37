/* A call as a JSON object: its name and arguments, told while the object is still being written.
 * RFC 8259 says what JSON is; what is not is no call, or, once it is announced, ends it. */
#include "tools/reply_impl.h"

#include <string.h>

void json_place_init(struct json_progress *place)
{
    *place = (struct json_progress){0};
}

bool json_place_ends(struct json_progress *place, char byte)
{
    place->begun = true;
    if (place->in_string) {
        if (place->escaped)
            place->escaped = false;
        else if (byte == '\\')
            place->escaped = true;
        else if (byte == '"')
            place->in_string = false;
        return !place->in_string && !place->depth;
    }
    if (byte == '"')
        place->in_string = true;
    else if (byte == '{' || byte == '[')
        place->depth++;
    else if ((byte == '}' || byte == ']') && place->depth)
        place->depth--;
    return !place->in_string && !place->depth && (byte == '}' || byte == ']');
}

/* ---- characters of a string ---- */

static void append_code_point(uint32_t code, struct buffer *out)
{
    char bytes[4];
    size_t n = 0;
    if (code < 0x80) {
        bytes[n++] = (char)code;
    } else if (code < 0x800) {
        bytes[n++] = (char)(0xc0 | code >> 6);
        bytes[n++] = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        bytes[n++] = (char)(0xe0 | code >> 12);
        bytes[n++] = (char)(0x80 | (code >> 6 & 63));
        bytes[n++] = (char)(0x80 | (code & 63));
    } else {
        bytes[n++] = (char)(0xf0 | code >> 18);
        bytes[n++] = (char)(0x80 | (code >> 12 & 63));
        bytes[n++] = (char)(0x80 | (code >> 6 & 63));
        bytes[n++] = (char)(0x80 | (code & 63));
    }
    buffer_append(out, bytes, n);
}

static uint32_t hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9')
        return (uint32_t)(byte - '0');
    if (byte >= 'a' && byte <= 'f')
        return (uint32_t)(byte - 'a' + 10);
    return byte >= 'A' && byte <= 'F' ? (uint32_t)(byte - 'A' + 10) : 16;
}

/* \uXXXX is whole: half of a pair waits for the other, and stands as U+FFFD without it. */
static void json_text_end_hex(struct json_text *text, struct buffer *out)
{
    const uint32_t code = text->code;
    const bool is_high = code >= 0xd800 && code < 0xdc00, is_low = code >= 0xdc00 && code < 0xe000;
    if (text->high && is_low)
        append_code_point(0x10000 + ((text->high - 0xd800) << 10) + (code - 0xdc00), out);
    else if (text->high || is_low)
        append_code_point(0xfffd, out);
    if (!is_high && !is_low)
        append_code_point(code, out);
    text->high = is_high ? code : 0;
}

static void json_text_lone(struct json_text *text, struct buffer *out)
{
    if (text->high)
        append_code_point(0xfffd, out);
    text->high = 0;
}

static bool json_text_escape(struct json_text *text, char byte, struct buffer *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = byte ? strchr(from, byte) : NULL;
    text->escaped = false;
    if (byte == 'u') {
        text->n_hex = 4;
        text->code = 0;
        return true;
    }
    json_text_lone(text, out);
    if (found)
        buffer_append(out, to + (found - from), 1);
    return found;
}

enum json_text_step { JSON_TEXT_GOES_ON, JSON_TEXT_ENDS, JSON_TEXT_BROKEN };

/* One byte after the opening quote; what it stands for is appended. */
static enum json_text_step json_text_take(struct json_text *text, char byte, struct buffer *out)
{
    if (text->n_hex) {
        const uint32_t digit = hex_digit(byte);
        if (digit > 15)
            return JSON_TEXT_BROKEN;
        text->code = text->code << 4 | digit;
        if (!--text->n_hex)
            json_text_end_hex(text, out);
        return JSON_TEXT_GOES_ON;
    }
    if (text->escaped)
        return json_text_escape(text, byte, out) ? JSON_TEXT_GOES_ON : JSON_TEXT_BROKEN;
    if (byte == '\\') {
        text->escaped = true;
        return JSON_TEXT_GOES_ON;
    }
    json_text_lone(text, out);
    if (byte == '"')
        return JSON_TEXT_ENDS;
    buffer_append(out, &byte, 1);
    return JSON_TEXT_GOES_ON;
}

/* ---- the object ---- */

void reply_json_begin(struct reply_reader *reply)
{
    reply->json = (struct json_call){0};
    reply->state = REPLY_IN_JSON;
}

static bool json_call_key_is(const struct json_call *call, const char *key)
{
    return strlen(key) == call->n_key && memcmp(call->key, key, call->n_key) == 0;
}

static bool json_call_has_arguments(const struct json_call *call)
{
    return json_call_key_is(call, "arguments") || json_call_key_is(call, "parameters");
}

/* A value's first byte. */
static enum json_call_state json_call_value(struct json_call *call, char byte)
{
    call->text = (struct json_text){0};
    json_place_init(&call->place);
    if (byte == '"' && json_call_key_is(call, "name"))
        return JSON_CALL_NAME;
    if (byte == '"' && json_call_key_is(call, "id"))
        return JSON_CALL_ID;
    if (byte == '"' && json_call_has_arguments(call) && !call->has_arguments)
        return JSON_CALL_ARGUMENTS_TEXT;
    if (byte == '{' && json_call_has_arguments(call) && !call->has_arguments)
        return JSON_CALL_ARGUMENTS;
    if (byte == '{' && json_call_key_is(call, "function") && !call->in_function) {
        call->in_function = true;
        return JSON_CALL_MEMBER;
    }
    json_place_ends(&call->place, byte);
    return JSON_CALL_OTHER;
}

static enum json_call_state json_call_member(struct json_call *call, char byte)
{
    if (byte == '"') {
        call->n_key = 0;
        return JSON_CALL_KEY;
    }
    if (byte == '}' && call->in_function) {
        call->in_function = false;
        return JSON_CALL_MEMBER;
    }
    if (byte == '}')
        return JSON_CALL_DONE;
    return byte == ',' ? JSON_CALL_MEMBER : JSON_CALL_BROKEN;
}

/* A member that no call has: so this is not one, where that is in doubt. */
static bool json_call_key_is_strange(const struct json_call *call)
{
    static const char *const known[] = {"name",     "id",        "type",
                                        "function", "arguments", "parameters"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (json_call_key_is(call, known[i]))
            return false;
    }
    return true;
}

static enum json_call_state json_call_key(struct json_call *call, bool asks_name, char byte)
{
    if (byte == '"')
        return asks_name && json_call_key_is_strange(call) ? JSON_CALL_BROKEN : JSON_CALL_COLON;
    if (call->n_key < sizeof call->key)
        call->key[call->n_key++] = byte;
    return byte == '\\' ? JSON_CALL_BROKEN : JSON_CALL_KEY;
}

/* A number or a word ends before what follows it. */
static enum json_call_state json_call_other(struct json_call *call, char byte)
{
    const struct json_progress *place = &call->place;
    if (!place->depth && !place->in_string && (byte == ',' || byte == '}'))
        return json_call_member(call, byte);
    json_place_ends(&call->place, byte);
    return JSON_CALL_OTHER;
}

static enum json_call_state json_call_text(struct json_call *call, char byte, struct buffer *out,
                                           enum json_call_state same)
{
    switch (json_text_take(&call->text, byte, out)) {
    case JSON_TEXT_ENDS:
        return JSON_CALL_MEMBER;
    case JSON_TEXT_BROKEN:
        return JSON_CALL_BROKEN;
    case JSON_TEXT_GOES_ON:
        break;
    }
    return out->size > LIMIT_TOOL_NAME_BYTES ? JSON_CALL_BROKEN : same;
}

static enum json_call_state json_call_before(struct reply_reader *reply, char byte)
{
    if (byte == '[' && !reply->in_list) {
        reply->in_list = true;
        return JSON_CALL_BEFORE;
    }
    return byte == '{' ? JSON_CALL_MEMBER : JSON_CALL_BROKEN;
}

/* Arguments go out as soon as the name is known. */
static void json_call_arguments(struct reply_reader *reply, const char *text, size_t size)
{
    if (reply->name.size && !reply->announced)
        reply_announce(reply);
    if (reply->announced)
        reply_tell(reply, REPLY_ARGUMENTS, text, size);
    else
        buffer_append(&reply->early, text, size);
    reply->json.has_arguments = true;
}

static enum json_call_state json_call_arguments_text(struct reply_reader *reply, char byte)
{
    struct buffer shown = {0};
    const enum json_text_step step = json_text_take(&reply->json.text, byte, &shown);
    if (shown.size)
        json_call_arguments(reply, shown.data, shown.size);
    reply->failed |= shown.failed;
    buffer_deinit(&shown);
    return step == JSON_TEXT_ENDS     ? JSON_CALL_MEMBER
           : step == JSON_TEXT_BROKEN ? JSON_CALL_BROKEN
                                      : JSON_CALL_ARGUMENTS_TEXT;
}

static enum json_call_state json_call_take(struct reply_reader *reply, char byte)
{
    struct json_call *call = &reply->json;
    const bool skips = reply_is_space(byte);
    switch (call->state) {
    case JSON_CALL_BEFORE:
        return skips ? call->state : json_call_before(reply, byte);
    case JSON_CALL_MEMBER:
        return skips ? call->state : json_call_member(call, byte);
    case JSON_CALL_KEY:
        return json_call_key(call, reply->format->asks_name && !reply->announced, byte);
    case JSON_CALL_COLON:
        return skips ? call->state : byte == ':' ? JSON_CALL_VALUE : JSON_CALL_BROKEN;
    case JSON_CALL_VALUE:
        return skips ? call->state : json_call_value(call, byte);
    case JSON_CALL_NAME:
        return json_call_text(call, byte, &reply->name, JSON_CALL_NAME);
    case JSON_CALL_ID:
        return json_call_text(call, byte, &reply->id, JSON_CALL_ID);
    case JSON_CALL_ARGUMENTS_TEXT:
        return json_call_arguments_text(reply, byte);
    case JSON_CALL_OTHER:
        return json_call_other(call, byte);
    case JSON_CALL_ARGUMENTS:
    case JSON_CALL_DONE:
    case JSON_CALL_BROKEN:
        break;
    }
    return call->state;
}

/* As much of the arguments as is there; how many bytes. */
static size_t json_call_pass(struct reply_reader *reply, const char *text, size_t size)
{
    struct json_call *call = &reply->json;
    size_t n = 0;
    if (!call->place.begun && size) /* the bracket that was seen before */
        json_place_ends(&call->place, '{');
    while (n < size && call->state == JSON_CALL_ARGUMENTS) {
        if (json_place_ends(&call->place, text[n++]))
            call->state = JSON_CALL_MEMBER;
    }
    json_call_arguments(reply, text, n);
    return n;
}

/* Arguments that came before the name. */
static void json_call_tell_early(struct reply_reader *reply)
{
    if (!reply->early.size)
        return;
    reply_announce(reply);
    reply_tell(reply, REPLY_ARGUMENTS, reply->early.data, reply->early.size);
    buffer_clear(&reply->early);
}

/* A second name, or one that is none. */
static bool json_call_name_is_wrong(const struct reply_reader *reply, enum json_call_state before)
{
    return before == JSON_CALL_NAME && reply->json.state == JSON_CALL_MEMBER &&
           (!reply->name.size || (reply->format->asks_name && !reply_is_tool(reply)));
}

static void json_call_end(struct reply_reader *reply)
{
    json_call_tell_early(reply);
    if (!reply->announced)
        reply_announce(reply);
    if (!reply->json.has_arguments)
        reply_tell(reply, REPLY_ARGUMENTS, "{}", 2);
    reply_call_over(reply);
}

static bool json_call_name_is_whole(const struct reply_reader *reply, enum json_call_state before)
{
    return before == JSON_CALL_NAME && reply->json.state == JSON_CALL_MEMBER;
}

static size_t json_call_step(struct reply_reader *reply, const char *text, size_t size)
{
    struct json_call *call = &reply->json;
    const enum json_call_state before = call->state;
    if (before == JSON_CALL_ARGUMENTS)
        return json_call_pass(reply, text, size);
    call->state = json_call_take(reply, text[0]);
    if (call->state == JSON_CALL_ARGUMENTS)
        json_call_arguments(reply, text, 1);
    if (call->state == JSON_CALL_NAME && before == JSON_CALL_VALUE && reply->name.size)
        call->state = JSON_CALL_BROKEN;
    if (json_call_name_is_wrong(reply, before))
        call->state = JSON_CALL_BROKEN;
    else if (json_call_name_is_whole(reply, before))
        json_call_tell_early(reply);
    return 1;
}

bool reply_json_step(struct reply_reader *reply)
{
    struct json_call *call = &reply->json;
    const char *rest = reply_rest(reply);
    const size_t left = reply_left(reply);
    size_t n = 0;
    while (n < left && call->state != JSON_CALL_DONE && call->state != JSON_CALL_BROKEN) {
        const size_t used = json_call_step(reply, rest + n, left - n);
        if (!reply->announced)
            buffer_append(&reply->raw, rest + n, used);
        n += used;
    }
    if (call->state == JSON_CALL_BROKEN && reply->announced)
        n--; /* the byte that breaks it is not the call's */
    reply_use(reply, n);
    if (call->state == JSON_CALL_DONE && reply->name.size)
        json_call_end(reply);
    else if (call->state == JSON_CALL_DONE || call->state == JSON_CALL_BROKEN || reply->final) {
        if (!reply->announced)
            reply_no_call(reply);
        else
            reply_call_over(reply);
    }
    return n || reply->state != REPLY_IN_JSON;
}
