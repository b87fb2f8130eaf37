/* A driver on the toy machine (fake_pipeline.h), and clients that remember what they were given. */
#pragma once

#include "fake_pipeline.h"
#include "pipeline/driver.h"

enum { CLIENT_TOKENS = 512 };

struct world {
    struct device *devices[4];
    uint32_t n_devices;
    struct driver *driver;
};

/* `n_stages` stages over `n_devices` devices in turn. Fails the test when the driver does not
 * open. */
void world_open(struct world *world, uint32_t n_stages, uint32_t n_devices,
                const struct driver_options *options);
void world_close(struct world *world);

struct client {
    struct request request;
    int32_t prompt[CLIENT_TOKENS];
    uint64_t id;
    uint32_t stop_after; /* its token callback says stop at this many; 0: never */

    /* written by the driver's callbacks, read after client_wait() */
    int32_t tokens[CLIENT_TOKENS];
    float logprobs[CLIENT_TOKENS];
    uint32_t n_tokens;
    uint32_t n_rows,
        n_bad_rows; /* rows given; those that are out of order or not what the toy model says */
    uint32_t n_done;
    enum finish_reason reason;
    struct request_usage usage;
    struct error error;
};

/* A request of `n_prompt` tokens drawn from `seed`, greedy. The client must not move after
 * client_submit(). */
void client_init(struct client *client, uint64_t seed, uint32_t n_prompt, uint32_t n_predict);
enum error_code client_submit(struct client *client, struct world *world, struct error *err);
void client_wait(const struct client *client); /* until `done`; fails the test after a minute */
bool client_is_done(const struct client *client);
bool client_has_tokens(const struct client *client, uint32_t n_tokens); /* by now */
uint32_t client_tokens(const struct client *client);                    /* so far */
bool client_wait_tokens(const struct client *client,
                        uint32_t n_tokens); /* until it has so many, or is done (false) */

/* What the request should give, computed without driver or stages, into `tokens`; returns how
 * many. */
uint32_t client_expected(const struct client *client, uint32_t context, int32_t *tokens);
/* Asserts that a finished client got a beginning of that, and all of it unless it was cancelled or
 * stopped. */
void client_check(const struct client *client, uint32_t context);
