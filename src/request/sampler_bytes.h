/* A sampler's settings as bytes, for every message that has them: the rows of SAMPLER_FIELDS, then,
 * where the message has them, its biases. How many biases there are stands elsewhere in the
 * message. Pure. */
#pragma once

#include "base/bytes.h"
#include "engine/sampler_params.h"

static inline void sampler_put(const struct sampler_params *params, struct buffer *out)
{
#define SAMPLER_PUT_FLOAT(value) bytes_put_float(out, value)
#define SAMPLER_PUT_U32(value) bytes_put(out, value, 4)
#define SAMPLER_PUT_U64(value) bytes_put(out, value, 8)
#define SAMPLER_PUT(TYPE, field, ...) SAMPLER_PUT_##TYPE(params->field);
    SAMPLER_FIELDS(SAMPLER_PUT)
#undef SAMPLER_PUT
}

static inline void sampler_get(struct bytes_reader *reader, struct sampler_params *params)
{
#define SAMPLER_GET_FLOAT bytes_get_float(reader)
#define SAMPLER_GET_U32 bytes_get_u32(reader)
#define SAMPLER_GET_U64 bytes_get(reader, 8)
#define SAMPLER_GET(TYPE, field, ...) params->field = SAMPLER_GET_##TYPE;
    SAMPLER_FIELDS(SAMPLER_GET)
#undef SAMPLER_GET
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
