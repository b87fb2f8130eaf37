/* One request of /v1/completions or /v1/chat/completions, from its JSON to its answer.
 *
 * Steps: parse (preparer) → ask for the model (loop) → render and tokenise (preparer) → submit, one
 * driver request for each choice (loop) → tokens (driver's thread, through the inbox) → text and
 * chunks (loop), or the whole answer (preparer, where it is large).
 *
 * It holds on to the exchange until the answer is complete or the client is gone, and lives until
 * the preparer and the driver have both let go of it. Private to the api room. */
#pragma once

#include "api/chat_reply.h"
#include "api/choice.h"
#include "api/internal.h"
#include "api/model_use.h"
#include "api/request_work.h"
#include "api/resume.h"
#include "request/prompt_picture.h"

struct completion_choice {
    struct inbox_item item; /* in the driver between submit and done */
    struct completion *completion;
    uint32_t index, prompt;
    uint64_t driver_id;
    bool running; /* the driver has it */
    struct choice text;
    struct buffer whole; /* of an answer that is not streamed */
    struct chat_reply reply;
    bool enough; /* it has made all the calls that are wanted */
    const char *finish_reason;
    struct stream_position position; /* of a stream */
    struct stream_position before;   /* what the client has had; no events: nothing */
    uint64_t last_token_ns;
};

/* The pictures of a prompt, [request.n_pictures], which is forgotten once it is prepared. */
struct completion_shown {
    uint32_t n;
    struct prompt_picture *pictures[LIMIT_PROMPT_PICTURES]; /* NULLs from the first not seen on */
    struct request_picture at[LIMIT_PROMPT_PICTURES];
};

struct dialect;

struct completion {
    struct request_work work;
    enum generation_kind kind;
    const struct dialect *dialect; /* NULL: OpenAI's chats and completions */
    /* what a dialect keeps while it streams */
    uint32_t n_blocks;
    bool in_block;
    enum reply_part block;
    uint64_t first_token_ns;
    uint32_t n_events;
    size_t block_from;
    struct buffer history;  /* messages so far, see responses.h */
    bool fills_in;          /* a suffix is filled in before, though it be empty */
    struct buffer rendered; /* the prompt's text, where it is all that is wanted */
    bool keeps;             /* … which the next request may go on from */
    uint64_t grant;         /* of whoever asks */
    struct buffer arguments;
    size_t n_body; /* bytes */
    struct generation_request request;
    struct model_use use;
    char id[48];
    uint64_t created;
    uint64_t started_ns;
    bool any_token;
    bool busy;                     /* a function up the stack uses it: do not free */
    struct metrics_model *figures; /* NULL: its model is not open */
    struct request_record *record; /* NULL: none, or it has ended */
    struct constraint *constraint; /* NULL: the answer may be anything */
    struct token_list *prompts;
    struct completion_shown *shown; /* of a chat; NULL: no pictures */
    struct template_traits traits;  /* of a chat */
    struct buffer opening;          /* what the prompt has of the replies: read before their text */
    struct tool_table tools;
    struct buffer *echoes; /* the prompts' texts, where they are asked for; else NULL */
    struct buffer answer;  /* not streamed, in the making */
    struct completion_choice *choices;
    uint32_t n_choices, n_running;
    struct token_batch batch;
    struct buffer out, json, event_id; /* scratch */
};

/* The completion that the work is part of: its first member. */
static inline struct completion *completion_of(struct request_work *work)
{
    return (struct completion *)(void *)work;
}

/* completion_prepare.c: steps on the preparer. */
void completion_parse(struct request_work *work);
void completion_prepare(struct request_work *work);

/* completion.c: a choice's item is ready, on the loop. */
void completion_choice_ready(struct inbox_item *item);

/* completion_answer.c: what goes to the client. */
void completion_begin_answer(struct completion *completion);
void completion_reply_event(void *self, const struct reply_event *event); /* of a choice */
void completion_take_tokens(struct completion_choice *choice, const struct token_batch *batch);
void completion_end_choice(struct completion_choice *choice);
void completion_end_answer(struct completion *completion);
void completion_fail(struct completion *completion, const struct api_error *err);
void completion_answer_out_of_memory(struct completion *completion);
/* The prompt is ready, and nothing else is wanted. */
void completion_answer_prepared(struct completion *completion);
void completion_cancel_choice(struct completion_choice *choice);
void completion_end_record(struct completion *completion,
                           enum record_outcome outcome);       /* once; completion.c */
void completion_free_when_over(struct completion *completion); /* completion.c */
