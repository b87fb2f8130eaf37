#include "pipeline/driver_form.h"

#include <assert.h>

enum error_code driver_form_init(struct driver *driver, const struct model *model,
                                 const struct stage_plan *stages, struct error *err)
{
    driver->form = (struct pipeline_form){.pipeline = &driver->pipeline,
                                          .model = model,
                                          .options = &driver->options,
                                          .watch = &driver->memory,
                                          .changes = true};
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++)
        driver->form.changes = driver->form.changes && stages[i].device;
    return pipeline_form_init(&driver->form, stages, err);
}

void driver_form_opened(struct driver *driver)
{
    pipeline_form_opened(&driver->form);
    if (!driver->form.changes || (!driver->options.cells && !driver->options.checkpoints))
        memory_watch_lacks_caches(&driver->memory);
}

void driver_ask_lower(struct driver *driver, const struct device *device, bool lower)
{
    pipeline_form_ask_lower(&driver->form, device, lower);
}

bool driver_form_is_due(struct driver *driver)
{
    driver->form_is_due = pipeline_form_is_due(&driver->form);
    return driver->form_is_due;
}

bool driver_form_can_change(const struct driver *driver, uint64_t now_ns)
{
    return driver->form_is_due && !driver->n_in_flight &&
           pipeline_form_may_try(&driver->form, now_ns);
}

bool driver_form_change(struct driver *driver, struct error *err)
{
    assert(!driver->n_in_flight);
    const bool is_there = pipeline_form_change(&driver->form, err);
    driver->form_is_due = driver->form_is_due && !is_there;
    return is_there;
}
