#include "pipeline/driver_generator.h"

#include "pipeline/driver.h"

static struct driver *driver_of(const struct generator *generator)
{
    return ((const struct driver_generator *)generator)->driver;
}

static enum error_code local_submit(struct generator *generator, const struct request *request,
                                    uint64_t *id, struct error *err)
{
    return driver_submit(driver_of(generator), request, id, err);
}

static void local_cancel(struct generator *generator, uint64_t id)
{
    driver_cancel(driver_of(generator), id);
}

static uint32_t local_context(const struct generator *generator)
{
    return driver_options(driver_of(generator))->context;
}

static struct driver_stats local_stats(const struct generator *generator)
{
    return driver_stats(driver_of(generator));
}

void generator_of_driver(struct driver_generator *out, struct driver *driver)
{
    static const struct generator_impl impl = {local_submit, local_cancel, local_context,
                                               local_stats};
    *out = (struct driver_generator){{&impl}, driver};
}
