#include "tools/reply_impl.h"

#include <assert.h>
#include <string.h>

void reply_use(struct reply_reader *reply, size_t n)
{
    assert(n <= reply_left(reply));
    reply->at += n;
    reply->scanned = reply->scanned > n ? reply->scanned - n : 0;
}

void reply_use_space(struct reply_reader *reply)
{
    const char *rest = reply_rest(reply);
    size_t n = 0;
    while (n < reply_left(reply) && reply_is_space(rest[n]))
        n++;
    reply_use(reply, n);
}

void reply_tell(struct reply_reader *reply, enum reply_part part, const char *text, size_t size)
{
    if (!size)
        return;
    reply->begun |= part == REPLY_CONTENT;
    reply->event(reply->self, &(struct reply_event){.part = part,
                                                    .call = reply->n_calls ? reply->n_calls - 1 : 0,
                                                    .text = text,
                                                    .size = size});
}

void reply_announce(struct reply_reader *reply)
{
    assert(!reply->announced);
    reply->announced = true;
    reply->n_calls++;
    buffer_clear(&reply->raw);
    reply->event(reply->self, &(struct reply_event){.part = REPLY_CALL,
                                                    .call = reply->n_calls - 1,
                                                    .text = reply->name.data,
                                                    .size = reply->name.size,
                                                    .id = reply->id.data ? reply->id.data : "",
                                                    .id_size = reply->id.size});
}

void reply_no_call(struct reply_reader *reply)
{
    reply_tell(reply, REPLY_CONTENT, reply->raw.data, reply->raw.size);
    buffer_clear(&reply->raw);
    reply->begun = true;
    reply->in_list = false;
    reply->state = REPLY_IN_TEXT;
}

void reply_call_over(struct reply_reader *reply)
{
    reply->announced = false;
    buffer_clear(&reply->raw);
    reply->begun = true;
    reply->state = REPLY_IN_GAP;
}

bool reply_is_tool(const struct reply_reader *reply)
{
    return reply->tools.is_tool &&
           reply->tools.is_tool(reply->tools.self, reply->name.data, reply->name.size);
}

enum mark_start reply_starts(const struct reply_reader *reply, const char *mark)
{
    const size_t size = strlen(mark), left = reply_left(reply);
    const size_t common = size < left ? size : left;
    if (memcmp(reply_rest(reply), mark, common) != 0)
        return MARK_IS_NOT_THERE;
    if (common == size)
        return MARK_IS_THERE;
    return reply->final ? MARK_IS_NOT_THERE : MARK_MAY_COME;
}

/* Whether one begins there: MARK_MAY_COME if it could with more text, or if one that stands before
 * it in the list could. */
static enum mark_start mark_at(const struct reply_reader *reply, size_t at,
                               const char *const *marks, size_t n_marks, int *which)
{
    const char *text = reply_rest(reply) + at;
    const size_t left = reply_left(reply) - at;
    enum mark_start result = MARK_IS_NOT_THERE;
    for (size_t i = 0; i < n_marks; i++) {
        const size_t size = marks[i] ? strlen(marks[i]) : 0;
        const size_t common = size < left ? size : left;
        if (!size || memcmp(text, marks[i], common) != 0)
            continue;
        *which = (int)i;
        if (common == size)
            return result == MARK_MAY_COME ? result : MARK_IS_THERE;
        if (!reply->final)
            result = MARK_MAY_COME;
    }
    return result;
}

struct mark_place reply_find(const struct reply_reader *reply, const char *const *marks,
                             size_t n_marks)
{
    const size_t left = reply_left(reply);
    for (size_t at = reply->scanned; at < left; at++) {
        int which = -1;
        switch (mark_at(reply, at, marks, n_marks, &which)) {
        case MARK_IS_THERE:
            return (struct mark_place){at, which};
        case MARK_MAY_COME:
            return (struct mark_place){at, -1};
        case MARK_IS_NOT_THERE:
            break;
        }
    }
    return (struct mark_place){left, -1};
}

/* ---- text, reasoning, and what is between calls ---- */

static size_t without_space(const char *text, size_t size)
{
    const size_t least = size > LIMIT_REPLY_SPACE ? size - LIMIT_REPLY_SPACE : 0;
    while (size > least && reply_is_space(text[size - 1]))
        size--;
    return size;
}

enum {
    TEXT_SECTION = TOOL_MARKS_MAX,
    TEXT_THOUGHT,
    TEXT_SILENT,
    TEXT_MARKS = TEXT_SILENT + TOOL_MARKS_MAX,
};

/* What ends plain text. A gap's mark does only where it begins a section of calls: one that may
 * stand in any text, such as "```", is not looked for. False: nothing does. */
static bool text_marks(const struct reply_reader *reply, const char *marks[TEXT_MARKS])
{
    const struct tool_format *format = reply->format;
    memset(marks, 0, TEXT_MARKS * sizeof *marks);
    memcpy(marks + TEXT_SILENT, format->silent, sizeof format->silent);
    if (reply->think && reply->think->anywhere)
        marks[TEXT_THOUGHT] = reply->think->begin;
    if (reply->tools.is_tool) {
        memcpy(marks, format->begin, sizeof format->begin);
        if (format->style == TOOL_STYLE_NAMED && !format->bare)
            marks[TEXT_SECTION] = format->gap[0];
    }
    return reply->tools.is_tool || marks[TEXT_THOUGHT] || format->silent[0];
}

static void reply_begin_call(struct reply_reader *reply)
{
    reply->announced = false;
    buffer_clear(&reply->name);
    buffer_clear(&reply->id);
    buffer_clear(&reply->early);
    reply->state = REPLY_AT_CALL;
}

/* So many bytes, a mark of a call and the white space before it, begin something else. */
static void reply_take_mark(struct reply_reader *reply, size_t size)
{
    buffer_clear(&reply->raw);
    buffer_append(&reply->raw, reply_rest(reply), size);
    reply_use(reply, size);
}

/* Only what comes first may open reasoning, or be a call without any mark. */
static bool reply_opens(struct reply_reader *reply, bool *waits)
{
    const char *rest = reply_rest(reply);
    const size_t left = reply_left(reply);
    const bool bare = reply->format->bare && reply->tools.is_tool;
    size_t n = 0;
    if (reply->begun || (!bare && !reply->think))
        return false;
    while (n < left && n < LIMIT_REPLY_SPACE && reply_is_space(rest[n]))
        n++;
    if (n == left) {
        *waits = !reply->final;
        return false;
    }
    if (bare && rest[n] == '{') {
        reply_take_mark(reply, n);
        reply_begin_call(reply);
        return true;
    }
    const char *const think = reply->think ? reply->think->begin : NULL;
    int which;
    const enum mark_start start = mark_at(reply, n, &think, 1, &which);
    *waits = start == MARK_MAY_COME;
    if (start != MARK_IS_THERE)
        return false;
    reply_use(reply, n + strlen(think));
    reply->state = REPLY_IN_THOUGHT;
    reply->drops_space = true;
    return true;
}

static void reply_drop_space(struct reply_reader *reply)
{
    if (reply->drops_space)
        reply_use_space(reply);
    reply->drops_space = reply->drops_space && !reply_left(reply);
}

/* The text goes on behind a mark, and the white space before it. */
static void reply_pass_mark(struct reply_reader *reply, int which, size_t size)
{
    if (which >= TEXT_THOUGHT) {
        reply_use(reply, size);
        reply->drops_space = true;
        if (which == TEXT_THOUGHT)
            reply->state = REPLY_IN_THOUGHT;
        return;
    }
    reply_take_mark(reply, size);
    if (which == TEXT_SECTION)
        reply->state = REPLY_IN_GAP;
    else
        reply_begin_call(reply);
}

static bool reply_text_step(struct reply_reader *reply)
{
    const char *marks[TEXT_MARKS];
    bool waits = false;
    reply_drop_space(reply);
    if (reply_opens(reply, &waits))
        return true;
    if (waits)
        return false;
    const bool any = text_marks(reply, marks);
    const struct mark_place found = reply_find(reply, marks, any ? TEXT_MARKS : 0);
    const bool holds = any && !(reply->final && found.which < 0);
    const size_t shown = holds ? without_space(reply_rest(reply), found.at) : found.at;
    reply_tell(reply, REPLY_CONTENT, reply_rest(reply), shown);
    reply->scanned = found.at;
    reply_use(reply, shown);
    if (found.which < 0)
        return shown;
    reply_pass_mark(reply, found.which, found.at - shown + strlen(marks[found.which]));
    return true;
}

/* What ends the reasoning: its own mark is the first. */
static size_t thought_marks(const struct reply_reader *reply, const char *marks[TEXT_MARKS])
{
    marks[0] = reply->think->end;
    if (!reply->format->ends_thought || !reply->tools.is_tool)
        return 1;
    marks[1] = reply->format->style == TOOL_STYLE_NAMED ? reply->format->gap[0] : NULL;
    memcpy(marks + 2, reply->format->begin, sizeof reply->format->begin);
    return 2 + TOOL_MARKS_MAX;
}

static bool reply_thought_step(struct reply_reader *reply)
{
    const char *marks[TEXT_MARKS];
    reply_drop_space(reply);
    const struct mark_place found = reply_find(reply, marks, thought_marks(reply, marks));
    const size_t shown = without_space(reply_rest(reply), found.at);
    reply_tell(reply, REPLY_REASONING, reply_rest(reply), shown);
    reply->scanned = found.at;
    reply_use(reply, shown);
    if (found.which >= 0) {
        reply_use(reply, found.at - shown + (found.which ? 0 : strlen(marks[0])));
        reply->state = REPLY_IN_TEXT;
        reply->drops_space = true;
    } else if (reply->final) {
        reply_use_space(reply);
    }
    return found.which >= 0 || shown;
}

/* Another call in the same section: its elements need no mark of their own. */
static bool reply_goes_on(struct reply_reader *reply, bool *waits)
{
    const struct tool_elements *elements = reply->format->elements;
    const enum mark_start start = elements && elements->name_open[0]
                                      ? reply_starts(reply, elements->name_open)
                                      : MARK_IS_NOT_THERE;
    *waits |= start == MARK_MAY_COME;
    if (start != MARK_IS_THERE)
        return false;
    buffer_clear(&reply->raw);
    reply_begin_call(reply);
    return true;
}

/* A list's comma and end are gaps as well. */
static bool reply_use_gap(struct reply_reader *reply, bool *waits)
{
    const char *rest = reply_rest(reply);
    if (reply->in_list && reply_left(reply) && (rest[0] == ',' || rest[0] == ']')) {
        reply->in_list = rest[0] == ',';
        reply_use(reply, 1);
        if (reply->in_list)
            reply_begin_call(reply);
        return true;
    }
    for (size_t i = 0; i < TOOL_MARKS_MAX && reply->format->gap[i]; i++) {
        const enum mark_start start = reply_starts(reply, reply->format->gap[i]);
        *waits |= start == MARK_MAY_COME;
        if (start == MARK_IS_THERE) {
            reply_use(reply, strlen(reply->format->gap[i]));
            return true;
        }
    }
    return reply_goes_on(reply, waits);
}

static bool reply_gap_step(struct reply_reader *reply)
{
    bool waits = false;
    reply_use_space(reply);
    if (!reply_left(reply))
        return false;
    if (reply_use_gap(reply, &waits))
        return true;
    if (waits)
        return false;
    reply->in_list = false;
    if (reply->format->bare && reply_rest(reply)[0] == '{')
        reply_begin_call(reply);
    else
        reply->state = REPLY_IN_TEXT;
    return true;
}

/* Which style the call has: JSON of one begins with a bracket in all. */
static bool reply_call_step(struct reply_reader *reply)
{
    const char *rest = reply_rest(reply);
    const size_t left = reply_left(reply);
    size_t n = 0;
    while (n < left && reply_is_space(rest[n]))
        n++;
    if (n == left && !reply->final)
        return false;
    buffer_append(&reply->raw, rest, n);
    reply_use(reply, n);
    if (n < left && (rest[n] == '{' || rest[n] == '['))
        reply_json_begin(reply);
    else if (n == left || reply->format->style == TOOL_STYLE_JSON)
        reply_no_call(reply);
    else if (reply->format->style == TOOL_STYLE_ELEMENTS)
        reply_elements_begin(reply);
    else if (reply->format->style == TOOL_STYLE_DICT)
        reply_dict_begin(reply);
    else
        reply->state = REPLY_IN_NAME;
    return true;
}

static bool reply_step(struct reply_reader *reply)
{
    switch (reply->state) {
    case REPLY_IN_TEXT:
        return reply_text_step(reply);
    case REPLY_IN_THOUGHT:
        return reply_thought_step(reply);
    case REPLY_IN_GAP:
        return reply_gap_step(reply);
    case REPLY_AT_CALL:
        return reply_call_step(reply);
    case REPLY_IN_JSON:
        return reply_json_step(reply);
    case REPLY_IN_NAME:
        return reply_name_step(reply);
    case REPLY_IN_VALUE:
        return reply_value_step(reply);
    case REPLY_IN_ELEMENTS_NAME:
    case REPLY_IN_ELEMENTS:
    case REPLY_IN_ELEMENT_KEY:
    case REPLY_IN_ELEMENT_VALUE:
    case REPLY_IN_ELEMENTS_JSON:
        return reply_elements_step(reply);
    case REPLY_IN_DICT_NAME:
    case REPLY_IN_DICT:
        return reply_dict_step(reply);
    case REPLY_IN_HEADER:
        return reply_header_step(reply);
    case REPLY_IN_MESSAGE:
        return reply_message_step(reply);
    }
    return false;
}

static void reply_start(struct reply_reader *reply)
{
    reply->started = true;
    if (reply->format->style == TOOL_STYLE_CHANNELS)
        reply->state = REPLY_IN_HEADER;
    else if (reply->thinks_first && reply->think)
        reply->state = REPLY_IN_THOUGHT;
    reply->drops_space = reply->state == REPLY_IN_THOUGHT;
}

static void reply_run(struct reply_reader *reply)
{
    while (!reply->failed && reply_step(reply)) {
        reply->failed = reply->held.failed || reply->raw.failed || reply->name.failed ||
                        reply->early.failed || reply->id.failed || reply->key.failed ||
                        reply->value_end.failed;
    }
    buffer_drop_front(&reply->held, reply->at);
    reply->at = 0;
}

void reply_reader_push(struct reply_reader *reply, const char *text, size_t size)
{
    if (!reply->started)
        reply_start(reply);
    buffer_append(&reply->held, text, size);
    reply->failed |= reply->held.failed;
    reply_run(reply);
}

void reply_reader_finish(struct reply_reader *reply)
{
    reply->final = true;
    reply->scanned = 0;
    reply_reader_push(reply, "", 0);
}

void reply_reader_deinit(struct reply_reader *reply)
{
    buffer_deinit(&reply->held);
    buffer_deinit(&reply->raw);
    buffer_deinit(&reply->early);
    buffer_deinit(&reply->name);
    buffer_deinit(&reply->id);
    buffer_deinit(&reply->key);
    buffer_deinit(&reply->value_end);
}
