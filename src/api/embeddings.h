/* What /v1/embeddings and /v1/rerank share: a request of many texts, each of which becomes a
 * vector, and one answer when all are there. Private to the api room. */
#pragma once

#include "api/exchange.h"
#include "api/internal.h"
#include "api/model_use.h"
#include "api/request_work.h"
#include "model/model.h"

struct embedding {
    struct inbox_item item; /* its `sum`: the vector, before it is scaled */
    struct embeddings_job *job;
    uint64_t driver_id;
    bool running;
};

/* What differs. All but `parsed` may be called off the loop. */
struct embeddings_kind {
    /* Reads the body: the model's name and how many texts there are. */
    bool (*parse)(struct embeddings_job *job, const char *body, size_t size);
    /* With the model there: each text's tokens into job->prompts. */
    bool (*prepare)(struct embeddings_job *job);
    /* Every text has its vector: the answer. */
    void (*write)(struct embeddings_job *job);
};

struct embeddings_job {
    struct request_work work;
    const struct embeddings_kind *kind;
    struct embeddings_request request; /* /v1/embeddings */
    struct rerank_request rerank;      /* /v1/rerank */
    uint64_t begun_ns;
    struct model_use use;
    size_t n_body; /* bytes */
    bool busy;     /* a function up the stack uses it: do not free */
    struct text model;
    uint32_t n_texts;
    struct token_list *prompts;   /* [n_texts] */
    struct embedding *embeddings; /* [n_texts] */
    uint32_t n_made;              /* embeddings that there are */
    uint32_t n_running;
    uint64_t prompt_tokens;
    struct buffer answer;
};

/* What Ollama's interface differs in alone. */
bool embeddings_take_request(struct embeddings_job *job);
bool embeddings_texts_prepare(struct embeddings_job *job);
/* Vectors of length 1, n_texts times *n_values floats; NULL: no memory. To be freed. */
float *embeddings_vectors(const struct embeddings_job *job, uint32_t *n_values);
void embeddings_begin(struct exchange *exchange, const struct embeddings_kind *kind);
const struct hyperparameters *embeddings_hyperparameters(const struct embeddings_job *job);
/* 400 with the code context_length_exceeded. */
bool embeddings_too_long(struct embeddings_job *job, const char *field, uint32_t index);
