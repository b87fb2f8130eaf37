/* What replies of an instance took, beside what was forecast for them when they ended. The driver
 * counts (struct driver_served); its node adds the forecast of that moment up for the same replies,
 * and tells everybody both in NOW, for as long as that driver lives. So nothing of it is the
 * leader's, and a new leader knows as much as the old one; a new placement has a new driver and
 * begins anew. On the loop's thread; served_step() and served_compare() are pure. */
#pragma once

#include "base/limits.h"
#include "request/request.h"

#include "cluster.pb-c.h"
#include "node.pb-c.h"

struct daemon;
struct run_forecast;

enum {
    SERVED_MAX = 64,        /* instances of a node */
    SERVED_TOKENS_MIN = 16, /* fewer tell no rate */
};

/* Those replies alone that there was a forecast for; zeroed: none. */
struct served_sums {
    struct driver_served measured;
    uint64_t forecast_reply_ns, forecast_prompt_ns; /* for the same tokens and prompts */
};

struct served_row {
    char instance[LIMIT_CLUSTER_ID_BYTES + 1]; /* "": the row is free */
    uint64_t epoch;                            /* of its placement */
    struct driver_served seen;                 /* what the driver had counted last */
    struct served_sums sums;
};

/* What has been counted since, with the forecast of now. Begins anew where the epoch is another or
 * a count fell. A reply's forecast is its tokens' rounds; a prompt's what of it was not cached, at
 * the forecast rate of prompts, and a round. */
void served_step(struct served_row *row, uint64_t epoch, const struct driver_served *now,
                 const struct run_forecast *forecast);

struct served_error {
    uint64_t n_replies;
    /* Of one stream, the first token aside; 0: not known */
    double tokens_per_s, forecast_tokens_per_s;
    /* Mean time from slot to first token; 0: not known */
    double first_token_s, forecast_first_token_s;
};
struct served_error served_compare(const struct served_sums *sums);
/* Measured / forecast - 1: negative is slower. False: it is not known. */
bool served_decode_error(const struct served_error *served, double *out);
/* The same of the time to the first token: positive is slower. */
bool served_first_token_error(const struct served_error *served, double *out);

/* Of an instance, wherever its driver is. */
struct served_error served_of(const struct daemon *daemon, const Cluster__Instance *instance);

struct served_told {
    Node__Served items[SERVED_MAX], *list[SERVED_MAX];
};
/* What NOW says of this node's drivers; now->served points into `told`. */
void served_tell(struct daemon *daemon, struct served_told *told, Node__Now *now);
