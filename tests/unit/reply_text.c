#include "reply_text.h"

#include <string.h>

static bool is_tool(void *self, const char *name, size_t size)
{
    (void)self;
    return (size == 11 && memcmp(name, "get_weather", 11) == 0) ||
           (size == 4 && memcmp(name, "ping", 4) == 0);
}

static bool takes_text(void *self, const char *tool, size_t tool_size, const char *key,
                       size_t key_size)
{
    (void)self;
    (void)tool;
    (void)tool_size;
    return key_size == 4 && memcmp(key, "city", 4) == 0;
}

static void take_event(void *self, const struct reply_event *event)
{
    static const char *const names[] = {"[say]", "[think]", "[call ", "[args]"};
    struct reply_text *out = self;
    const bool goes_on = out->last == (int)event->part && event->part != REPLY_CALL;
    out->last = (int)event->part;
    if (!goes_on && event->part != REPLY_ARGUMENTS)
        buffer_text(&out->text, names[event->part]);
    buffer_append(&out->text, event->text, event->size);
    if (event->part != REPLY_CALL)
        return;
    if (event->id_size)
        buffer_text(&out->text, " ");
    buffer_append(&out->text, event->id, event->id_size);
    buffer_text(&out->text, "]");
}

void reply_text_init(struct reply_text *out, const char *format, const struct think_marks *think,
                     bool thinks_first, bool tools)
{
    *out = (struct reply_text){.last = -1};
    out->reply = (struct reply_reader){.format = tool_format_named(format),
                                       .think = think,
                                       .thinks_first = thinks_first,
                                       .event = take_event,
                                       .self = out};
    if (tools)
        out->reply.tools = (struct reply_tools){.is_tool = is_tool, .takes_text = takes_text};
}

void reply_text_deinit(struct reply_text *text)
{
    reply_reader_deinit(&text->reply);
    buffer_deinit(&text->text);
}
