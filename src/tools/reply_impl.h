/* What the files that read replies share. Each step looks at the bytes that are held, and either
 * uses some, or changes the state, or returns false: it needs more. Where `final` is set there is
 * no more. Private to the tools room. */
#pragma once

#include "tools/reply.h"

struct mark_place {
    size_t at; /* of the first mark; which -1: in the bytes before there is none for certain */
    int which;
};

/* The first of the marks in the text, "" not being one. */
struct mark_place reply_find(const struct reply_reader *reply, const char *const *marks,
                             size_t n_marks);
enum mark_start { MARK_IS_THERE, MARK_MAY_COME, MARK_IS_NOT_THERE };
/* Whether the text begins with it. */
enum mark_start reply_starts(const struct reply_reader *reply, const char *mark);

static inline const char *reply_rest(const struct reply_reader *reply)
{
    return reply->held.data ? reply->held.data + reply->at : "";
}

static inline size_t reply_left(const struct reply_reader *reply)
{
    return reply->held.size - reply->at;
}

static inline bool reply_is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

void reply_use(struct reply_reader *reply, size_t n); /* so many bytes are done */
void reply_use_space(struct reply_reader *reply);
void reply_tell(struct reply_reader *reply, enum reply_part part, const char *text, size_t size);
/* The call of reply->name, with reply->id. */
void reply_announce(struct reply_reader *reply);
/* What is in `raw` was none after all: it is content. */
void reply_no_call(struct reply_reader *reply);
void reply_call_over(struct reply_reader *reply);
bool reply_is_tool(const struct reply_reader *reply); /* reply->name may be called */

void json_place_init(struct json_progress *place);
/* True: the value, an object or a list, ends with this byte. */
bool json_place_ends(struct json_progress *place, char byte);

/* Arguments that are not written as JSON: characters of a text, and a whole value, which is a text
 * where it is no JSON. */
void reply_tell_text(struct reply_reader *reply, const char *text, size_t size);
void reply_tell_value(struct reply_reader *reply, const char *text, size_t size);
/* Characters of a JSON string. */
void reply_escape(struct buffer *out, const char *text, size_t size);

void reply_json_begin(struct reply_reader *reply);
bool reply_json_step(struct reply_reader *reply);
bool reply_name_step(struct reply_reader *reply);
bool reply_value_step(struct reply_reader *reply);
void reply_elements_begin(struct reply_reader *reply);
bool reply_elements_step(struct reply_reader *reply);
void reply_dict_begin(struct reply_reader *reply);
bool reply_dict_step(struct reply_reader *reply);
bool reply_header_step(struct reply_reader *reply);
bool reply_message_step(struct reply_reader *reply);
