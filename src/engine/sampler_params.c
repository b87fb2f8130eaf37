#include "engine/sampler_params.h"

#include <assert.h>

struct sampler_params sampler_defaults(void)
{
#define SAMPLER_DEFAULT(TYPE, field, usual, ...) .field = (usual),
    return (struct sampler_params){SAMPLER_FIELDS(SAMPLER_DEFAULT)};
#undef SAMPLER_DEFAULT
}

struct sampler_params sampler_off(void)
{
#define SAMPLER_OFF(TYPE, field, usual, off, ...) .field = (off),
    return (struct sampler_params){SAMPLER_FIELDS(SAMPLER_OFF)};
#undef SAMPLER_OFF
}

static enum error_code sampler_check_float(const char *name, float value, float lowest,
                                           float highest, struct error *err)
{
    assert(lowest < highest);
    if (value >= lowest && value <= highest) /* false for NaN */
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "%s: %g is not between %g and %g", name, (double)value,
                     (double)lowest, (double)highest);
}

static enum error_code sampler_check_u64(const char *name, uint64_t value, uint64_t lowest,
                                         uint64_t highest, struct error *err)
{
    assert(lowest < highest);
    if (value >= lowest && value <= highest)
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "%s: %llu is not between %llu and %llu", name,
                     (unsigned long long)value, (unsigned long long)lowest,
                     (unsigned long long)highest);
}

static enum error_code sampler_check_biases(const struct sampler_params *params, uint32_t n_vocab,
                                            struct error *err)
{
    if (params->n_biases > LIMIT_LOGIT_BIAS)
        return error_set(err, ERROR_INVALID, "logit_bias: %u tokens are more than %d",
                         params->n_biases, LIMIT_LOGIT_BIAS);
    for (uint32_t i = 0; i < params->n_biases; i++) {
        const struct logit_bias *bias = &params->biases[i];
        if (bias->token < 0 || (uint32_t)bias->token >= n_vocab)
            return error_set(err, ERROR_INVALID,
                             "logit_bias: token %d is not in the vocabulary of %u", bias->token,
                             n_vocab);
        if (sampler_check_float("logit_bias", bias->bias, -SAMPLER_BIAS_MAX, SAMPLER_BIAS_MAX, err))
            return ERROR_INVALID;
    }
    return ERROR_NONE;
}

#define sampler_check_FLOAT sampler_check_float
#define sampler_check_U32 sampler_check_u64
#define sampler_check_U64 sampler_check_u64

enum error_code sampler_check(const struct sampler_params *params, uint32_t n_vocab,
                              struct error *err)
{
#define SAMPLER_CHECK(TYPE, field, usual, off, lowest, highest, ...)                               \
    if (sampler_check_##TYPE(#field, params->field, lowest, highest, err))                         \
        return ERROR_INVALID;
    SAMPLER_FIELDS(SAMPLER_CHECK)
#undef SAMPLER_CHECK
    return sampler_check_biases(params, n_vocab, err);
}
