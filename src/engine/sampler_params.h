/* How the next token is chosen: the settings, each a row of one table.
 *
 * Whoever handles them field by field is written from SAMPLER_FIELDS: the struct itself, defaults
 * and ranges (sampler_params.c), the bytes of a message (request/sampler_bytes.h), the API's
 * fields (api/request_json.c) and the options of `medley run` (cli/run.c). A new setting is a row
 * at the end; what a row lacks does not compile.
 *
 *     X(TYPE, field, default, off, lowest, highest, api, option)
 *
 * TYPE     FLOAT, U32 or U64. The order of the rows is the order in messages.
 * default  of the commands.
 * off      where it changes nothing, which is what the API begins with, as OpenAI's does. (A
 *          temperature of 1 is the model's own distribution.)
 * lowest … highest  what sampler_check() takes. (A U64 is any.)
 * api      API(lowest, highest): the API has the field under this name, with a narrower range;
 *          NOT_IN_API.
 * option   OPTION(name, what it takes, as the help says it); NO_OPTION.
 *
 *   temperature        0 is greedy
 *   top_k              candidates; 0: off
 *   top_p, typical_p   0 keep one token
 *   repeat_penalty     divides a positive logit
 *   penalty_last_n     tokens looked back at; 0: all
 *   seed               of the draws
 */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stdint.h>

#define SAMPLER_FIELDS(X)                                                                          \
    X(FLOAT, temperature, 0.8f, 1, 0, 100, API(0, 2), OPTION("temp", "T"))                         \
    X(U32, top_k, 40, 0, 0, LIMIT_VOCAB, API(0, LIMIT_VOCAB), OPTION("top-k", "N"))                \
    X(FLOAT, top_p, 0.95f, 1, 0, 1, API(0, 1), OPTION("top-p", "P"))                               \
    X(FLOAT, min_p, 0.05f, 0, 0, 1, API(0, 1), OPTION("min-p", "P"))                               \
    X(FLOAT, typical_p, 1, 1, 0, 1, API(0, 1), OPTION("typical", "P"))                             \
    X(FLOAT, repeat_penalty, 1, 1, 0.01f, 100, API(0.01, 10), OPTION("repeat-penalty", "X"))       \
    X(FLOAT, frequency_penalty, 0, 0, -2, 2, API(-2, 2), OPTION("frequency-penalty", "X"))         \
    X(FLOAT, presence_penalty, 0, 0, -2, 2, API(-2, 2), OPTION("presence-penalty", "X"))           \
    X(U32, penalty_last_n, 0, 0, 0, UINT32_MAX, NOT_IN_API, NO_OPTION)                             \
    X(U64, seed, 0, 0, 0, UINT64_MAX, API(0, 0x1p64), OPTION("seed", "S"))

struct logit_bias {
    int32_t token;
    float bias;
};

#define SAMPLER_TYPE_FLOAT float
#define SAMPLER_TYPE_U32 uint32_t
#define SAMPLER_TYPE_U64 uint64_t
#define SAMPLER_MEMBER(TYPE, field, ...) SAMPLER_TYPE_##TYPE field;
struct sampler_params {
    SAMPLER_FIELDS(SAMPLER_MEMBER)
    const struct logit_bias *biases; /* the caller's, must outlive the use */
    uint32_t n_biases;
};
#undef SAMPLER_MEMBER

struct sampler_params sampler_defaults(void);
struct sampler_params sampler_off(void); /* the model's own distribution, nothing cut; seed 0 */

/* Checks ranges; the error names the field. Biases are -100 to 100 on tokens of the vocabulary, at
 * most LIMIT_LOGIT_BIAS. The functions of sampler.h assert it. */
enum error_code sampler_check(const struct sampler_params *params, uint32_t n_vocab,
                              struct error *err);

#define SAMPLER_BIAS_MAX 100.0f /* at this a token is forced, at its negative forbidden */
