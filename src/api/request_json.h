/* From a request's JSON to a struct, strictly: every field is checked, and one that is unknown, not
 * supported, given twice, of a wrong type or out of range is refused with an error that names it.
 * null stands for "not given". Pure: bytes in, struct out; no limits but those of base/limits.h and
 * the ones below.
 *
 * A parsed request owns its document; the texts in it point there and live until its deinit, which
 * takes a zeroed or half-parsed request too. */
#pragma once

#include "api/errors.h"
#include "api/stop.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "engine/sampler.h"
#include "grammar/grammar.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct yyjson_doc;
struct yyjson_val;

enum {
    LIMIT_PROMPTS = 256,         /* prompts or inputs of one request */
    LIMIT_REQUEST_CHOICES = 256, /* prompts times n */
    LIMIT_TOOLS = 128,           /* of one request, and calls of one message */
};

enum generation_kind { GENERATION_CHAT, GENERATION_COMPLETION };

struct prompt_input { /* a text, or token ids when `tokens` */
    struct text text;
    int32_t *tokens;
    uint32_t n_tokens;
};

struct chat_picture {
    struct text base64; /* of a PNG, JPEG or WebP file; not looked at yet */
    char path[128];     /* where it stood, for errors */
};

enum tool_choice { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED };

struct generation_request {
    enum generation_kind kind;
    struct text model;
    struct prompt_input *prompts;  /* of a completion */
    uint32_t n_prompts;            /* 1 for a chat */
    struct buffer chat_json;       /* of a chat: the chat template's input */
    struct chat_picture *pictures; /* of a chat, in the order of their marks (chat_pictures.h) */
    uint32_t n_pictures;
    bool has_max_tokens, has_seed;
    uint32_t max_tokens;
    struct text suffix; /* of a completion: what is to stand behind it; data NULL: nothing */
    uint32_t n;         /* choices of each prompt */
    bool stream, include_usage, echo;
    bool logprobs;
    uint32_t n_top_logprobs;
    struct text stops[LIMIT_STOP_STRINGS];
    uint32_t n_stops;
    struct sampler_params sampler; /* its biases are the request's own */
    struct logit_bias *biases;
    /* Of a chat, until its prompt is rendered: see request_tools.c. */
    struct yyjson_val *tools; /* NULL: none */
    enum tool_choice tool_choice;
    struct text tool_name;        /* data NULL: any of them */
    bool one_call;                /* parallel_tool_calls is false */
    uint32_t strict_tool;         /* the first that is `strict`, from 1; 0: none */
    struct text reasoning_effort; /* data NULL: not given */
    struct yyjson_val *template_arguments;
    struct yyjson_doc *doc;
    /* What the answer must follow: its text is the request's own, its field says where it was. */
    struct grammar_source grammar;
    struct buffer grammar_text;
    char grammar_field[64];
    struct buffer kept; /* see generation_request_shrink() */
    /* Of the model (model_defaults.h), until the prompt is rendered. */
    struct text system; /* data NULL: none */
    struct yyjson_doc *defaults;
};

struct embeddings_request {
    struct text model;
    struct prompt_input *inputs;
    uint32_t n_inputs;
    bool base64;
    uint32_t dimensions; /* 0: all */
    struct yyjson_doc *doc;
};

struct rerank_request {
    struct text model, query;
    struct text *documents;
    uint32_t n_documents;
    uint32_t top_n; /* 0: all */
    bool return_documents;
    struct yyjson_doc *doc;
};

struct tokenize_request {
    struct text model; /* data NULL: not given */
    struct text content;
    bool add_special, parse_special;
    struct yyjson_doc *doc;
};

struct detokenize_request {
    struct text model; /* as above */
    int32_t *tokens;
    uint32_t n_tokens;
    struct yyjson_doc *doc;
};

/* Token ids are checked against LIMIT_VOCAB: no model is known yet. False: `err` is set, and *out
 * needs no deinit. */
bool generation_request_parse(enum generation_kind kind, const char *body, size_t size,
                              struct generation_request *out, struct api_error *err);
bool embeddings_request_parse(const char *body, size_t size, struct embeddings_request *out,
                              struct api_error *err);
bool rerank_request_parse(const char *body, size_t size, struct rerank_request *out,
                          struct api_error *err);
bool tokenize_request_parse(const char *body, size_t size, struct tokenize_request *out,
                            struct api_error *err);
bool detokenize_request_parse(const char *body, size_t size, struct detokenize_request *out,
                              struct api_error *err);

/* What only the model can tell: whether every token id is below its n_vocab. */
bool generation_request_check(const struct generation_request *request, uint32_t n_vocab,
                              struct api_error *err);
bool embeddings_request_check(const struct embeddings_request *request, uint32_t n_vocab,
                              struct api_error *err);
bool detokenize_request_check(const struct detokenize_request *request, uint32_t n_vocab,
                              struct api_error *err);

/* Once its prompts are tokens: gives back what it does not need any more. The names of the model
 * and the stop strings are kept. */
void generation_request_shrink(struct generation_request *request);

void generation_request_deinit(struct generation_request *request);
void embeddings_request_deinit(struct embeddings_request *request);
void rerank_request_deinit(struct rerank_request *request);
void tokenize_request_deinit(struct tokenize_request *request);
void detokenize_request_deinit(struct detokenize_request *request);
