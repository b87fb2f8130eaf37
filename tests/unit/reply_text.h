/* A reply's events as one text, for tests: "[think]…[say]…[call NAME ID]…", joined where the same
 * part goes on. */
#pragma once

#include "tools/reply.h"

struct reply_text {
    struct reply_reader reply;
    struct buffer text;
    int last; /* part, -1: none */
};

/* The tools are get_weather (city: text, days: number) and ping, unless `tools` is false. */
void reply_text_init(struct reply_text *out, const char *format, const struct think_marks *think,
                     bool thinks_first, bool tools);
void reply_text_deinit(struct reply_text *text);
