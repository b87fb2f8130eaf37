/* What the files of the api room share: the server itself and the handlers of its routes. */
#pragma once

#include "api/access_kept.h"
#include "api/connections.h"
#include "api/errors.h"
#include "api/gate.h"
#include "api/inbox.h"
#include "api/metrics.h"
#include "api/record.h"
#include "api/request_json.h"
#include "api/server.h"
#include "base/live_feed.h"
#include "base/work_limit.h"
#include "model/tokenizer.h"

struct access;
struct access_grant;
struct exchange;
struct live_stream;
struct api_listener;
struct batches;
struct lws;
struct lws_context;
struct loop_watch;
struct preparer;
struct rpc;
struct response_store;
struct server_tls;
struct traces;

struct api_server {
    struct api_models models;
    struct live_feed live;
    struct live_stream *live_streams;
    struct api_bridge bridge;
    struct api_limits limits;
    struct access *access;
    struct access_kept kept;
    struct sessions *sessions;
    const char *node_id, *node_name; /* the owner's; NULL: none */
    bool shares_prefixes;
    bool serves_page;
    uint32_t waiting_ms;
    char *cors_origin;
    struct gate gate;
    char host[256];
    uint16_t port;
    struct inbox inbox;
    struct preparer *preparer;
    struct metrics metrics;
    struct api_metrics_source more_metrics;
    struct request_records records;
    struct traces *traces; /* NULL: nobody asked for them */
    uint32_t n_jobs;       /* completions and the like that are not freed yet */
    struct connections connections;
    struct api_listener *listener;
    struct exchange *exchanges;
    uint64_t body_bytes;        /* of all bodies being gathered, or waiting to be read */
    uint64_t unread_bytes;      /* of all answers that have not gone out whole */
    struct memory_total memory; /* of all requests */
    bool in_callback;           /* of libwebsockets */
    struct exchange *held;      /* exchange_hold(); NULL: none */
    bool stopping;
    uint64_t stop_ns; /* when stopping began */
    void (*stopped)(void *arg);
    void *stopped_arg;
    bool closing; /* the context is being destroyed */
    void *uv_loop;
    struct rpc *rpc;
    uint32_t n_ways; /* of calls of gRPC to the API */
    struct lws_context *lws;
    struct server_timer *timer;
    struct server_tls *tls;                      /* NULL: plain HTTP */
    const char *more_names[LIMIT_API_HOSTS + 1]; /* of its certificate: --host; ended by NULL */
    struct response_store *responses;
    struct batches *batches;
    const char *puller; /* the program, see server.h; NULL: none */
    struct server_timer *token_timer;
    bool watches_tokens;
    struct server_timer *record_timer;
    bool watches_records;
    unsigned char *scratch; /* one write */
    struct loop_watch *loop_watch;
};

/* While it stops: what came in just before is answered still. */
bool server_answers_last(const struct api_server *server);
/* A job begins or ends: what a stop waits for. */
void server_job_begin(struct api_server *server);
void server_job_end(struct api_server *server);
uint64_t server_wall_ms(void); /* since 1970 */
/* There are requests with a token: it is looked at while they last (ACCESS_SWEEP_MS). */
void server_watch_tokens(struct api_server *server);
/* Requests are under way: what computes them is looked at every RECORD_TICK_MS, and at their end.
 */
void server_watch_records(struct api_server *server);
void server_end_record(struct api_server *server, struct request_record *record,
                       enum record_outcome outcome);
bool server_is_named(const struct text *text, const char *name); /* name NULL: false */
/* The error for a name that no model has, naming those that there are for the grant; name->data
 * NULL: none was given. */
void server_no_such_model(const struct api_server *server, const struct access_grant *grant,
                          const struct text *name, const struct error *cause,
                          struct api_error *err);

/* Tokens of a prompt: the text's, special tokens recognised, with the model's BOS in front if it
 * wants one and the text does not begin with it. 400 with code context_length_exceeded when they do
 * not fit. False: `err` is set. Any thread. */
bool server_encode_prompt(const struct api_model *model, const struct prompt_input *prompt,
                          struct token_list *out, struct api_error *err);

/* The same of a chat's text with a mark for each picture (chat_pictures.h), which all were looked
 * at: their rows' tokens stand in their places. Fills shown->at. */
struct completion_shown;
bool server_encode_shown(const struct api_model *model, const struct text *text,
                         struct completion_shown *shown, struct token_list *out,
                         struct api_error *err);

/* The same of a text that is to be filled in between the prompt, a text, and the suffix. 400 naming
 * `suffix` where the model cannot. */
bool server_encode_infill(const struct api_model *model, const struct prompt_input *prompt,
                          const struct text *suffix, struct token_list *out, struct api_error *err);

/* The routes' handlers. */
void completion_handle(struct exchange *exchange);        /* /v1/completions */
void chat_completion_handle(struct exchange *exchange);   /* /v1/chat/completions */
void anthropic_handle(struct exchange *exchange);         /* /v1/messages */
void anthropic_count_handle(struct exchange *exchange);   /* /v1/messages/count_tokens */
void ollama_chat_handle(struct exchange *exchange);       /* /api/chat */
void ollama_generate_handle(struct exchange *exchange);   /* /api/generate */
void ollama_tags_handle(struct exchange *exchange);       /* /api/tags */
void ollama_ps_handle(struct exchange *exchange);         /* /api/ps */
void ollama_show_handle(struct exchange *exchange);       /* /api/show */
void ollama_version_handle(struct exchange *exchange);    /* /api/version */
void ollama_embed_handle(struct exchange *exchange);      /* /api/embed */
void ollama_embeddings_handle(struct exchange *exchange); /* /api/embeddings */
void responses_handle(struct exchange *exchange);         /* /v1/responses */
void llama_completion_handle(struct exchange *exchange);  /* /completion */
void llama_infill_handle(struct exchange *exchange);      /* /infill */
void llama_template_handle(struct exchange *exchange);    /* /apply-template */
void llama_props_handle(struct exchange *exchange);       /* /props */
void llama_slots_handle(struct exchange *exchange);       /* /slots */
void embeddings_handle(struct exchange *exchange);
void rerank_handle(struct exchange *exchange);
void tokenize_handle(struct exchange *exchange);
void detokenize_handle(struct exchange *exchange);
void history_handle(struct exchange *exchange); /* /api/history */
void live_handle(struct exchange *exchange);    /* /api/live */
void live_end_all(struct api_server *server);   /* while the server stops */
void metrics_handle(struct exchange *exchange);
void openapi_handle(struct exchange *exchange);  /* /openapi.json */
void requests_handle(struct exchange *exchange); /* /api/requests */
void request_handle(struct exchange *exchange);  /* /api/requests/ID */
