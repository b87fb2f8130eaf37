#include "api/stop.h"

#include <string.h>

/* Whether a stop string stands at `at`: 1 yes, 0 no, -1 the text ends before that is known. */
static int stop_match_at(struct stop_matcher *matcher, const char *at, size_t size)
{
    int result = 0;
    for (uint32_t i = 0; i < matcher->n_strings; i++) {
        const struct text *string = &matcher->strings[i];
        size_t length = string->size < size ? string->size : size;
        if (memcmp(at, string->data, length) != 0)
            continue;
        if (length == string->size) {
            matcher->met = string;
            return 1;
        }
        result = -1;
    }
    return result;
}

/* Moves out of `held` what is certain. `last`: no more text comes, so an unfinished match is none.
 * A later match must wait while an earlier, longer one is still possible, so the walk stops at the
 * first place that is not a plain "no". `held` is at most LIMIT_STOP_BYTES plus one piece long. */
static void stop_release(struct stop_matcher *matcher, bool last, struct buffer *out)
{
    struct buffer *held = &matcher->held;
    size_t i = 0;
    int found = 0;
    while (i < held->size) {
        found = stop_match_at(matcher, held->data + i, held->size - i);
        if (found > 0 || (found < 0 && !last))
            break;
        i++;
    }
    buffer_append(out, held->data, i);
    if (held->size)
        buffer_drop_front(held, i);
    matcher->stopped = found > 0;
}

bool stop_push(struct stop_matcher *matcher, const char *text, size_t size, struct buffer *out)
{
    if (matcher->stopped)
        return true;
    if (!matcher->n_strings) {
        buffer_append(out, text, size);
        return false;
    }
    struct buffer *held = &matcher->held;
    buffer_append(held, text, size);
    if (held->failed) {
        out->failed = true;
        return false;
    }
    stop_release(matcher, false, out);
    return matcher->stopped;
}

bool stop_finish(struct stop_matcher *matcher, struct buffer *out)
{
    if (!matcher->stopped)
        stop_release(matcher, true, out);
    buffer_clear(&matcher->held);
    return matcher->stopped;
}

void stop_deinit(struct stop_matcher *matcher)
{
    buffer_deinit(&matcher->held);
    *matcher = (struct stop_matcher){0};
}
