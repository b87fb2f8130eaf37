/* The text of one choice as its tokens come: characters made whole, stop strings taken out, and the
 * logprobs of exactly the tokens whose text has come out. Pure; one thread.
 *
 * A choice is zeroed but for the fields marked "set before use". */
#pragma once

#include "api/inbox.h"
#include "api/response_json.h"
#include "api/stop.h"
#include "model/tokenizer.h"
#include "tools/tool_format.h"

struct choice {
    const struct tokenizer *tokenizer; /* set before use */
    struct stop_matcher stop;          /* its strings: set before use */
    bool logprobs;                     /* set before use: keep them */
    /* set before use: special tokens that are its marks are shown; NULL: none is */
    const struct template_traits *traits;
    struct token_stream stream;
    struct buffer piece; /* scratch */
    uint64_t n_decoded;  /* bytes that the tokens so far have given */
    uint64_t n_released; /* bytes that have come out */
    uint64_t n_scored;   /* bytes of the prompt's tokens so far */
    uint32_t n_tokens;
    bool failed; /* out of memory */
    struct shown_token *shown;
    struct token_logprob *tops;
    uint32_t n_shown, n_tops, shown_capacity, tops_capacity;
};

/* Appends to `out` the text that this token makes certain. True: a stop string was met; push no
 * more. */
bool choice_push(struct choice *choice, const struct token_record *token,
                 const struct token_logprob *tops, struct buffer *out);
/* The text begins with the prompt's, of that many bytes, which the caller has put out itself. */
void choice_begin_with(struct choice *choice, size_t n_bytes);
/* A token of that text, the first of all with a logprob of NaN: only its logprob is kept. */
void choice_push_prompt(struct choice *choice, const struct token_record *token,
                        const struct token_logprob *tops);
/* No token follows: appends the rest. True: a stop string was in it. */
bool choice_finish(struct choice *choice, struct buffer *out);

/* The logprobs of tokens whose text has come out and that were not dropped yet; valid until the
 * next push. */
struct logprob_list choice_logprobs(const struct choice *choice);
void choice_drop_logprobs(struct choice *choice, size_t n_tokens);
void choice_deinit(struct choice *choice);
