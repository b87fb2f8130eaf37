/* The forms that a driver's stages take when memory is short, and when it is there again
 * (pipeline_form.h).
 *
 * A change: nothing new is begun; when nothing is under way, the stages are closed and opened anew,
 * and every sequence begins again with its tokens. So no token is lost; but those that come may
 * differ from what the other form would have given in their last bits. Where even that finds no
 * memory, the ladder goes on, and at its end it is tried again every second; after a minute of that
 * the requests end with the error.
 *
 * Only where all stages are on devices of this process. Changing is the driver's own thread's, for
 * it waits for the devices'; everything else the baton holder's. */
#pragma once

#include "pipeline/driver_state.h"

/* Before the stages are loaded, and after. ERROR_NO_MEMORY. */
enum error_code driver_form_init(struct driver *driver, const struct model *model,
                                 const struct stage_plan *stages, struct error *err);
void driver_form_opened(struct driver *driver);

/* Whether the stages have to change: then no micro-batch is to be sent. */
bool driver_form_is_due(struct driver *driver);
/* Nothing is under way, and the last attempt was long enough ago. With the lock. */
bool driver_form_can_change(const struct driver *driver, uint64_t now_ns);
/* True: the stages are there, all slots empty. False: `*err`; it is to be tried again. */
bool driver_form_change(struct driver *driver, struct error *err);
