/* A call as a name and a dictionary: keys stand bare, texts between marks of their own, as in
 * call:NAME{city:<|"|>Rome<|"|>,days:[1,2]}. It is told as JSON. Keys and texts in JSON's quotes,
 * and texts without any, are read too; a depth or a bracket that cannot be ends the call. */
#include "tools/reply_impl.h"

#include <assert.h>
#include <string.h>

void reply_dict_begin(struct reply_reader *reply)
{
    reply->dict = (struct dict_call){0};
    reply->scanned = 0;
    reply->state = REPLY_IN_DICT_NAME;
}

/* ---- the name ---- */

static bool dict_name_is_one(const char *text, size_t size)
{
    bool is = size && size <= LIMIT_TOOL_NAME_BYTES;
    for (size_t i = 0; i < size && is; i++)
        is = !reply_is_space(text[i]);
    return is;
}

static bool dict_name_step(struct reply_reader *reply)
{
    static const char *const open = "{";
    const char *rest = reply_rest(reply), *prefix = reply->format->prefix;
    const size_t n_prefix = strlen(prefix);
    const struct mark_place end = reply_find(reply, &open, 1);
    if (end.which < 0 && !reply->final && end.at <= n_prefix + LIMIT_TOOL_NAME_BYTES)
        return false;
    const bool has_prefix = end.at > n_prefix && memcmp(rest, prefix, n_prefix) == 0;
    const size_t from = has_prefix ? n_prefix : 0;
    if (end.which < 0 || !dict_name_is_one(rest + from, end.at - from)) {
        reply_no_call(reply);
        return true;
    }
    buffer_append(&reply->name, rest + from, end.at - from);
    reply_use(reply, end.at + 1);
    reply->scanned = 0;
    reply->dict.depth = 1;
    reply->state = REPLY_IN_DICT;
    reply_announce(reply);
    reply_tell(reply, REPLY_ARGUMENTS, "{", 1);
    return true;
}

/* ---- brackets ---- */

static bool dict_in_list(const struct dict_call *dict)
{
    return dict->lists >> (dict->depth - 1) & 1;
}

static void dict_comma(struct reply_reader *reply)
{
    if (reply->dict.comma)
        reply_tell(reply, REPLY_ARGUMENTS, ", ", 2);
    reply->dict.comma = false;
}

static bool dict_opens(struct reply_reader *reply, bool is_list)
{
    struct dict_call *dict = &reply->dict;
    if (dict->depth == LIMIT_DICT_DEPTH)
        return false;
    dict->lists &= ~(UINT64_C(1) << dict->depth);
    dict->lists |= (uint64_t)is_list << dict->depth;
    dict->depth++;
    dict->state = is_list ? DICT_VALUE : DICT_KEY;
    dict_comma(reply);
    reply_tell(reply, REPLY_ARGUMENTS, is_list ? "[" : "{", 1);
    reply_use(reply, 1);
    return true;
}

/* The bracket is that of the list or dictionary at hand. */
static bool dict_closes(struct reply_reader *reply, char byte)
{
    struct dict_call *dict = &reply->dict;
    if (byte != (dict_in_list(dict) ? ']' : '}'))
        return false;
    reply_tell(reply, REPLY_ARGUMENTS, &byte, 1);
    reply_use(reply, 1);
    dict->comma = false;
    dict->state = DICT_NEXT;
    if (!--dict->depth)
        reply_call_over(reply);
    return true;
}

/* ---- keys and values ---- */

/* Whatever cannot be ends the call, unfinished. */
static bool dict_breaks(struct reply_reader *reply)
{
    reply->scanned = 0;
    reply_call_over(reply);
    return true;
}

/* Without the white space and the quotes around it. */
static size_t dict_trim(const struct reply_reader *reply, const char **text, size_t size)
{
    const char *const quotes[] = {reply->format->separator[0], "\""};
    while (size && reply_is_space(**text))
        ++*text, size--;
    while (size && reply_is_space((*text)[size - 1]))
        size--;
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(quotes[i]);
        if (size >= 2 * n && memcmp(*text, quotes[i], n) == 0 &&
            memcmp(*text + size - n, quotes[i], n) == 0) {
            *text += n;
            return size - 2 * n;
        }
    }
    return size;
}

static bool dict_key_step(struct reply_reader *reply)
{
    static const char *const ends[] = {":", "}", ",", "{"};
    const struct mark_place end = reply_find(reply, ends, sizeof ends / sizeof *ends);
    const char *key = reply_rest(reply);
    if (*key == '}')
        return dict_closes(reply, '}');
    reply->scanned = end.at;
    if (end.which < 0 && !reply->final && end.at <= LIMIT_TOOL_NAME_BYTES)
        return false;
    if (end.which != 0 || end.at > LIMIT_TOOL_NAME_BYTES)
        return dict_breaks(reply);
    const size_t size = dict_trim(reply, &key, end.at);
    if (reply->dict.depth == 1) {
        buffer_clear(&reply->key);
        buffer_append(&reply->key, key, size);
    }
    dict_comma(reply);
    reply_tell(reply, REPLY_ARGUMENTS, "\"", 1);
    reply_tell_text(reply, key, size);
    reply_tell(reply, REPLY_ARGUMENTS, "\": ", 3);
    reply_use(reply, end.at + 1);
    reply->scanned = 0;
    reply->dict.state = DICT_VALUE;
    return true;
}

/* A value of a tool's argument that is not written as a text, though the schema wants one. */
static bool dict_word_is_text(const struct reply_reader *reply, const char *word, size_t size)
{
    const struct buffer *key = &reply->key, *name = &reply->name;
    return reply->dict.depth == 1 && reply->tools.takes_text &&
           !(size == 4 && (memcmp(word, "null", 4) == 0 || memcmp(word, "None", 4) == 0)) &&
           reply->tools.takes_text(reply->tools.self, name->data, name->size,
                                   key->data ? key->data : "", key->size);
}

/* A number, a word, or a text without quotes. */
static bool dict_word_step(struct reply_reader *reply)
{
    static const char *const ends[] = {",", "}", "]"};
    const struct mark_place end = reply_find(reply, ends, sizeof ends / sizeof *ends);
    const char *word = reply_rest(reply);
    size_t size = end.at;
    reply->scanned = end.at;
    if (end.which < 0 && !reply->final)
        return false;
    while (size && reply_is_space(word[size - 1]))
        size--;
    dict_comma(reply);
    const bool is_text = dict_word_is_text(reply, word, size);
    if (end.which < 0 || is_text) {
        reply_tell(reply, REPLY_ARGUMENTS, "\"", is_text);
        reply_tell_text(reply, word, size);
        reply_tell(reply, REPLY_ARGUMENTS, "\"", is_text && end.which >= 0);
    } else {
        reply_tell_value(reply, word, size);
    }
    reply_use(reply, end.at);
    reply->scanned = 0;
    reply->dict.state = DICT_NEXT;
    return true;
}

static bool dict_value_step(struct reply_reader *reply)
{
    const char *mark = reply->format->separator[0], byte = reply_rest(reply)[0];
    if (byte == ']' && dict_in_list(&reply->dict))
        return dict_closes(reply, byte);
    if (byte == '{' || byte == '[')
        return dict_opens(reply, byte == '[') || dict_breaks(reply);
    const enum mark_start start = reply_starts(reply, mark);
    if (start == MARK_MAY_COME)
        return false;
    if (start == MARK_IS_NOT_THERE && byte != '"')
        return dict_word_step(reply);
    dict_comma(reply);
    reply_tell(reply, REPLY_ARGUMENTS, "\"", 1);
    reply_use(reply, start == MARK_IS_THERE ? strlen(mark) : 1);
    reply->scanned = 0;
    reply->dict.escaped = false;
    reply->dict.state = start == MARK_IS_THERE ? DICT_TEXT : DICT_QUOTED;
    return true;
}

static bool dict_text_step(struct reply_reader *reply)
{
    const char *mark = reply->format->separator[0];
    const struct mark_place end = reply_find(reply, &mark, 1);
    reply_tell_text(reply, reply_rest(reply), end.at);
    reply_use(reply, end.at);
    reply->scanned = 0;
    if (end.which < 0)
        return end.at;
    reply_tell(reply, REPLY_ARGUMENTS, "\"", 1);
    reply_use(reply, strlen(mark));
    reply->dict.state = DICT_NEXT;
    return true;
}

/* A JSON string goes on as it is. */
static bool dict_quoted_step(struct reply_reader *reply)
{
    struct dict_call *dict = &reply->dict;
    const char *rest = reply_rest(reply);
    const size_t left = reply_left(reply);
    size_t n = 0;
    while (n < left && dict->state == DICT_QUOTED) {
        const char byte = rest[n++];
        if (!dict->escaped && byte == '"')
            dict->state = DICT_NEXT;
        dict->escaped = !dict->escaped && byte == '\\';
    }
    reply_tell(reply, REPLY_ARGUMENTS, rest, n);
    reply_use(reply, n);
    return n;
}

static bool dict_next_step(struct reply_reader *reply)
{
    const char byte = reply_rest(reply)[0];
    if (byte != ',')
        return dict_closes(reply, byte) || dict_breaks(reply);
    reply_use(reply, 1);
    reply->dict.comma = true;
    reply->dict.state = dict_in_list(&reply->dict) ? DICT_VALUE : DICT_KEY;
    return true;
}

bool reply_dict_step(struct reply_reader *reply)
{
    if (reply->state == REPLY_IN_DICT_NAME)
        return dict_name_step(reply);
    const enum dict_state state = reply->dict.state;
    assert(reply->announced && reply->dict.depth && reply->dict.depth <= LIMIT_DICT_DEPTH);
    if (state != DICT_TEXT && state != DICT_QUOTED && !reply->scanned)
        reply_use_space(reply);
    if (!reply_left(reply)) {
        if (reply->final)
            reply_call_over(reply);
        return reply->final;
    }
    switch (state) {
    case DICT_KEY:
        return dict_key_step(reply);
    case DICT_VALUE:
        return dict_value_step(reply);
    case DICT_TEXT:
        return dict_text_step(reply);
    case DICT_QUOTED:
        return dict_quoted_step(reply);
    case DICT_NEXT:
        return dict_next_step(reply);
    }
    return false;
}
