/* Another interface than OpenAI's over the same completion: a translator. A request becomes the
 * body of a chat or text completion, so that one reader checks it and one path generates; what
 * comes out is written in the interface's own shape. Private to the api room. */
#pragma once

#include "api/completion.h"

struct dialect {
    const char *id;   /* what ids of its answers begin with */
    bool lines;       /* streams are lines of JSON, not server-sent events */
    bool keeps_parts; /* the choice keeps what it says of a stream, too */
    /* On the preparer, pure: the body as OpenAI's interface has it, for completion->kind, which it
     * may set. False: `err` is set. */
    bool (*read)(struct completion *completion, const char *body, size_t size, struct buffer *out,
                 struct api_error *err);
    /* Only the prompt is wanted: the answer, on the loop; NULL: it is answered by generating. */
    void (*prepared)(const struct completion *completion, struct buffer *out);
    /* Of a stream, on the loop; NULL: nothing is to be said. They write completion->json, and send
     * it with dialect_send(). */
    void (*begin)(struct completion *completion);
    void (*part)(struct completion_choice *choice, const struct response_choice *shown);
    void (*end)(struct completion *completion, const struct response_usage *usage);
    /* The answer of a request that does not stream. */
    void (*whole)(struct completion *completion, const struct response_choice *choice,
                  const struct response_usage *usage, struct buffer *out);
};

/* The routes' handlers are this. */
void completion_handle_dialect(struct exchange *exchange, enum generation_kind kind,
                               const struct dialect *dialect);
/* Sends what is in completion->json, and empties it. `name`: of the event; unused for lines. */
void dialect_send(struct completion *completion, const char *name);

/* Writing a request anew: members of an object, with a comma before each but the first. */
void dialect_member(struct buffer *out, const char *name);
struct yyjson_val;
void dialect_copy(struct buffer *out, const char *name,
                  struct yyjson_val *value); /* NULL: nothing */
/* A JSON value as a text: arguments of a call. */
void dialect_json_text(struct buffer *out, struct yyjson_val *value);
/* Arguments of a call as an object; what a model left unfinished is {}. */
void dialect_object(struct buffer *out, const char *json, size_t size);
/* The object in a body. NULL: `err` says what is wrong. */
struct yyjson_doc *dialect_open(const char *body, size_t size, struct api_error *err);
/* What a member must be where it is given; for those that nothing else looks at. */
enum dialect_type { DIALECT_TEXT, DIALECT_FLAG, DIALECT_OBJECT, DIALECT_ARRAY };
struct dialect_field {
    const char *name; /* NULL: the table's end */
    enum dialect_type type;
};
/* `at` stands before the name in the error. */
bool dialect_check_types(struct yyjson_val *object, const char *at,
                         const struct dialect_field *fields, struct api_error *err);
/* Whether every member's name is in the list, ended by NULL; `at` stands before it in the error. */
bool dialect_check(struct yyjson_val *object, const char *at, const char *const *known,
                   struct api_error *err);
