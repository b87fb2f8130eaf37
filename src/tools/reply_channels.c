/* Harmony: a reply is a row of messages, each with a header. "analysis" is reasoning, what goes to
 * a recipient is a call, the rest is content. The prompt ends with the first header's begin.
 *
 *     <|channel|>analysis<|message|>…<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.NAME
 * <|constrain|>json<|message|>{…}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>…<|return|> */
#include "tools/reply_impl.h"

#include <string.h>

static const char *const header_end = "<|message|>";
/* Of a message; the last two begin the header of another one. */
static const char *const message_ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>",
                                           "<|channel|>"};
enum { MESSAGE_ENDS = sizeof message_ends / sizeof *message_ends, MESSAGE_BEGINS = 3 };

/* What stands after a sign, up to white space or a mark. */
static size_t header_word(const char *header, size_t size, const char *sign, const char **word)
{
    const size_t length = strlen(sign);
    for (size_t i = 0; i + length <= size; i++) {
        if (memcmp(header + i, sign, length) != 0)
            continue;
        size_t n = 0;
        *word = header + i + length;
        while (i + length + n < size && !reply_is_space((*word)[n]) && (*word)[n] != '<')
            n++;
        return n;
    }
    *word = "";
    return 0;
}

static void header_take(struct reply_reader *reply, const char *header, size_t size)
{
    const char *channel, *recipient;
    const size_t n_channel = header_word(header, size, "<|channel|>", &channel);
    size_t n_recipient = header_word(header, size, " to=", &recipient);
    const size_t prefix = strlen(reply->format->prefix);
    reply->part =
        n_channel == 8 && memcmp(channel, "analysis", 8) == 0 ? REPLY_REASONING : REPLY_CONTENT;
    if (!n_recipient || !reply->tools.is_tool)
        return;
    if (n_recipient > prefix && memcmp(recipient, reply->format->prefix, prefix) == 0) {
        recipient += prefix;
        n_recipient -= prefix;
    }
    buffer_clear(&reply->name);
    buffer_append(&reply->name, recipient, n_recipient);
    reply->part = REPLY_ARGUMENTS;
    reply->failed |= reply->name.failed;
    if (!reply->failed)
        reply_announce(reply);
}

/* A reply without a header is content. */
bool reply_header_step(struct reply_reader *reply)
{
    const struct mark_place end = reply_find(reply, &header_end, 1);
    const char *rest = reply_rest(reply);
    const size_t left = reply_left(reply);
    const bool is_header = left && (rest[0] == '<' || rest[0] == ' ' || reply->begun);
    reply->scanned = end.at;
    if (!left)
        return false;
    if (end.which >= 0 && is_header && end.at <= LIMIT_CHANNEL_BYTES) {
        header_take(reply, rest, end.at);
        reply_use(reply, end.at + strlen(header_end));
        reply->scanned = 0;
        reply->state = REPLY_IN_MESSAGE;
        return true;
    }
    if (is_header && !reply->final && left <= LIMIT_CHANNEL_BYTES)
        return false;
    if (reply->final && left >= 2 && rest[0] == '<' && rest[1] == '|') {
        reply_use(reply, left); /* a header that was cut off says nothing */
        return true;
    }
    if (rest[0] == '<') /* of a header that is none: the mark would begin it again */
        reply_tell(reply, REPLY_CONTENT, rest, 1);
    reply_use(reply, rest[0] == '<');
    reply->part = REPLY_CONTENT;
    reply->scanned = 0;
    reply->state = REPLY_IN_MESSAGE;
    return true;
}

bool reply_message_step(struct reply_reader *reply)
{
    const struct mark_place end = reply_find(reply, message_ends, MESSAGE_ENDS);
    reply_tell(reply, reply->part, reply_rest(reply), end.at);
    reply->scanned = end.at;
    reply_use(reply, end.at);
    if (end.which < 0)
        return end.at;
    reply->announced = false;
    if (end.which < MESSAGE_BEGINS)
        reply_use(reply, strlen(message_ends[end.which]));
    reply->scanned = 0;
    reply->begun = true;
    reply->state = REPLY_IN_HEADER;
    return true;
}
