/* Replies of drivers in this process, timed: for benchmarks of guessed tokens. A failure ends the
 * program. */
#pragma once

#include "pipeline/driver.h"

#include <pthread.h>

enum { REPLY_CONTEXT = 2048 };

struct reply {
    int32_t tokens[REPLY_CONTEXT];
    uint32_t n_tokens;
    struct request_usage usage;
    double decode_s, processor_s; /* from the first token on */
    double processor_at_first_s;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

void replies_fail(const char *what, const char *why) __attribute__((noreturn));

/* One option of a program, a number from `least` to `most`. */
struct replies_option {
    const char *name;
    uint32_t least, most, *value;
};
enum { REPLIES_TURNS_MAX = 99 };
/* Reads the pairs of words from argv[first] on; `usage` is what is said of an odd one. */
void replies_read_options(int argc, char **argv, int first, const struct replies_option *options,
                          uint32_t n_options, const char *usage);

/* Waits for it. Above a temperature of 1 of all tokens. */
void replies_answer(struct driver *driver, const int32_t *prompt, uint32_t n_prompt,
                    uint32_t n_predict, float temperature, uint64_t seed, struct reply *reply);
void replies_must_be_same(const struct reply *a, const struct reply *b);
/* The whole model on one device. */
struct driver *replies_open_driver(const struct model *model, struct device *device,
                                   const struct driver_options *options);
double replies_median(double *values, uint32_t n);
double replies_now_s(void);
