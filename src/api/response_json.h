/* From what was generated to the API's JSON. Pure: each function appends one complete object to
 * `out` (whose `failed` tells that memory ran out), always valid JSON in valid UTF-8. */
#pragma once

#include "api/request_json.h"
#include "base/buffer.h"
#include "tools/reply.h"

#include <stdint.h>

struct tokenizer;

struct response_head {
    enum generation_kind kind;
    bool stream;
    const char *id;    /* "chatcmpl-…" */
    const char *model; /* the id of the model that answers */
    uint64_t created;  /* seconds since 1970 */
};

struct shown_token { /* a token whose logprob is shown */
    int32_t token;
    float logprob;
    uint32_t top_first, n_top; /* its most probable rivals in logprob_list.tops */
    uint64_t text_offset;      /* bytes of generated text before it */
};

struct logprob_list {
    const struct shown_token *tokens;
    size_t n_tokens;
    const struct token_logprob *tops;
    const struct tokenizer *tokenizer; /* for the tokens' texts */
};

struct chat_reply;

struct response_choice {
    uint32_t index;
    bool first; /* of a chat stream: the chunk that names the role */
    struct text text;
    enum reply_part part;           /* of a chat's stream: what the text is */
    uint32_t call;                  /* of a call or its arguments */
    const char *call_id;            /* of a call */
    const struct chat_reply *reply; /* of a chat that is not streamed: its reasoning and calls */
    const struct logprob_list *logprobs; /* NULL: not asked for */
    const char *finish_reason;           /* NULL: not finished */
};

struct response_usage {
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t drafted_tokens, accepted_tokens; /* guessed, and of those that were right */
};

/* ,"timings":{…} as llama-server says what was drafted; nothing where nothing was. */
void response_write_drafts(const struct response_usage *usage, struct buffer *out);

/* One event of a stream. `usage_asked` writes "usage":null, as OpenAI does when usage comes at the
 * end. */
void response_chunk(const struct response_head *head, const struct response_choice *choice,
                    bool usage_asked, struct buffer *out);
/* The event with the usage, which has no choices. */
void response_usage_chunk(const struct response_head *head, const struct response_usage *usage,
                          struct buffer *out);
void response_whole(const struct response_head *head, const struct response_choice *choices,
                    uint32_t n_choices, const struct response_usage *usage, struct buffer *out);

/* Embeddings: `vectors` holds n times n_values floats. */
void response_embeddings(const char *model, const float *vectors, uint32_t n, uint32_t n_values,
                         bool base64, uint64_t prompt_tokens, struct buffer *out);

void response_model(const char *id, uint64_t created, struct buffer *out);
void response_tokens(const int32_t *tokens, size_t count, struct buffer *out);
