/* A sampler's settings as bytes, for every message that has them: its numbers in their order, then,
 * where the message has them, its biases. How many biases there are stands elsewhere in the
 * message. Pure. */
#pragma once

#include "base/bytes.h"
#include "engine/sampler.h"

static inline void sampler_put(const struct sampler_params *params, struct buffer *out)
{
    bytes_put_float(out, params->temperature);
    bytes_put(out, params->top_k, 4);
    bytes_put_float(out, params->top_p);
    bytes_put_float(out, params->min_p);
    bytes_put_float(out, params->typical_p);
    bytes_put_float(out, params->repeat_penalty);
    bytes_put_float(out, params->frequency_penalty);
    bytes_put_float(out, params->presence_penalty);
    bytes_put(out, params->penalty_last_n, 4);
    bytes_put(out, params->seed, 8);
}

static inline void sampler_get(struct bytes_reader *reader, struct sampler_params *params)
{
    params->temperature = bytes_get_float(reader);
    params->top_k = bytes_get_u32(reader);
    params->top_p = bytes_get_float(reader);
    params->min_p = bytes_get_float(reader);
    params->typical_p = bytes_get_float(reader);
    params->repeat_penalty = bytes_get_float(reader);
    params->frequency_penalty = bytes_get_float(reader);
    params->presence_penalty = bytes_get_float(reader);
    params->penalty_last_n = bytes_get_u32(reader);
    params->seed = bytes_get(reader, 8);
}

static inline void biases_put(const struct logit_bias *biases, uint32_t n, struct buffer *out)
{
    for (uint32_t i = 0; i < n; i++) {
        bytes_put(out, (uint32_t)biases[i].token, 4);
        bytes_put_float(out, biases[i].bias);
    }
}

static inline void biases_get(struct bytes_reader *reader, struct logit_bias *biases, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        biases[i].token = (int32_t)bytes_get_u32(reader);
        biases[i].bias = bytes_get_float(reader);
    }
}
