/* Whoever turns requests into tokens: the driver of this process (pipeline/driver_generator.h), or
 * one that is reached through the cluster. Those who ask (the API, `medley run`) do not know which.
 *
 * Semantics and threading of submit and cancel are driver.h's, of the handlers request.h's. A
 * generator lives in its owner's struct, first; who owns it says how long. */
#pragma once

#include "request/request.h"

struct generator;

struct generator_impl {
    enum error_code (*submit)(struct generator *generator, const struct request *request,
                              uint64_t *id, struct error *err);
    void (*cancel)(struct generator *generator, uint64_t id);
    uint32_t (*context)(
        const struct generator *generator); /* tokens of one sequence: prompt and answer */
    struct driver_stats (*stats)(const struct generator *generator);
};

struct generator {
    const struct generator_impl *impl;
};

static inline enum error_code generator_submit(struct generator *generator,
                                               const struct request *request, uint64_t *id,
                                               struct error *err)
{
    return generator->impl->submit(generator, request, id, err);
}

static inline void generator_cancel(struct generator *generator, uint64_t id)
{
    generator->impl->cancel(generator, id);
}

static inline uint32_t generator_context(const struct generator *generator)
{
    return generator->impl->context(generator);
}

static inline struct driver_stats generator_stats(const struct generator *generator)
{
    return generator->impl->stats(generator);
}
