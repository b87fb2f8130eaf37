/* Records of requests: for each completion what it took, where it was computed and what held it up.
 * Never what was asked or answered.
 *
 * The records of requests under way are a list; the last RECORDS_FINISHED that are over are a ring.
 * A completion has one from the moment it was read until it is freed. Where memory lacks it has
 * none: every function accepts NULL, and the request goes on.
 *
 *     begin → opened → submitted → token … → usage → end
 *
 * Times are of clock_now_ns(); what is not known yet is 0 there and null in JSON. On the loop's
 * thread. */
#pragma once

#include "api/stop.h"
#include "api/trace_context.h"
#include "base/buffer.h"
#include "request/request.h"
#include "request/request_run.h"

enum {
    RECORDS_FINISHED = 200,
    RECORD_PAUSES = 8, /* of one request; the last one goes on counting */
    RECORD_TICK_MS = 250,
    RECORD_MODELS = 16, /* whose requests under way are looked at */
};

struct api_models;

enum record_outcome {
    RECORD_UNDER_WAY,
    RECORD_DONE,      /* the answer is whole */
    RECORD_STOPPED,   /* the server was stopping */
    RECORD_CANCELLED, /* its client left, or read too slowly */
    RECORD_FAILED,    /* it was answered with an error */
    RECORD_OUTCOMES,
};
const char *api_record_outcome_name(enum record_outcome outcome);

struct record_pause {
    uint64_t begun_ns, ended_ns; /* ended 0: it lasts */
    char why[REQUEST_WHY_TEXT];
};

struct request_record {
    struct request_record *next, *before; /* of those under way */
    char id[48], model[128], client[LIMIT_ACCESS_TOKEN_NAME_BYTES + 1];
    enum record_outcome outcome;
    uint64_t started_ms; /* since 1970 */
    uint64_t started_ns, submitted_ns, first_token_ns, last_token_ns, ended_ns;
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
    bool has_usage;
    uint64_t queued_ns, prefill_ns, decode_ns, slowest_ns; /* with has_usage */
    struct record_pause pauses[RECORD_PAUSES];
    uint32_t n_pauses;
    bool lacks_joules; /* what a device takes was not known all the time */
    double joules;
    uint64_t metered_ns; /* until then; 0: not yet */
    /* what computed it, as it was last */
    char driver[REQUEST_RUN_TEXT];
    double forecast_decode_tokens_per_s;
    struct request_run_stage *stages;
    uint32_t n_stages;
    /* What each of them took; NULL: not known. They may be others than those now. */
    struct request_stage_time *times;
    uint32_t n_times;
    uint64_t back_ns;           /* with times */
    struct trace_context trace; /* without a span: it is not traced */
};

struct request_records {
    struct request_record *under_way;
    uint32_t n_under_way;
    struct request_record *finished[RECORDS_FINISHED]; /* the newest is n_finished - 1, modulo */
    uint64_t n_finished;
};

/* A completion of `id` was read. `client`: its token's name, "" where it has none. NULL: no
 * memory. */
struct request_record *api_record_begin(struct request_records *records, const char *id,
                                        const char *client, uint64_t started_ns, uint64_t wall_ms);
void api_record_opened(struct request_record *record, const char *model);
void api_record_submitted(struct request_record *record, uint32_t n_prompt, uint64_t now_ns);
void api_record_token(struct request_record *record, uint64_t now_ns);
/* Of one choice; the others' prompt is the same. */
void api_record_usage(struct request_record *record, const struct request_usage *usage);
/* What computes its model, at `now_ns`: pauses begin and end, and energy is counted, shared evenly
 * by `n_sharing` requests. */
void api_record_see_run(struct request_record *record, const struct request_run *run,
                        uint32_t n_sharing, uint64_t now_ns);
/* The same of all requests under way, of up to RECORD_MODELS models, and of one that ends. */
void api_records_see_runs(struct request_records *records, const struct api_models *models,
                          uint64_t now_ns);
void api_record_see_last_run(struct request_records *records, struct request_record *record,
                             const struct api_models *models, uint64_t now_ns);
/* Into the ring. Once; *record stays good until the next one ends. */
void api_record_end(struct request_records *records, struct request_record *record,
                    enum record_outcome outcome, uint64_t now_ns);
void api_records_deinit(struct request_records *records);

/* Tokens a second behind the first one; 0: unknown. */
double api_record_decode_tokens_per_s(const struct request_record *record);
double api_record_prefill_tokens_per_s(const struct request_record *record);

/* Of a stage; NULL: unknown. */
const struct request_stage_time *api_record_stage_time(const struct request_record *record,
                                                       uint32_t index);

/* NULL: there is none of that id. */
const struct request_record *api_records_find(const struct request_records *records,
                                              struct text id);
/* As GET /api/requests shows them. `names`: with the clients' names. */
void api_record_write(const struct request_record *record, bool names, uint64_t now_ns,
                      struct buffer *out);
void api_records_write(const struct request_records *records, bool names, uint64_t now_ns,
                       struct buffer *out);
