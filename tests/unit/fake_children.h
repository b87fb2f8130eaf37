/* Devices' processes (pipeline/children.h) in the place of the real ones when a program is linked:
 * the lanes of toy devices, each a runner in this process. What goes to them and comes from them
 * goes the way of messages, and they die when a test says so. */
#pragma once

#include "fake_pipeline.h"
#include "pipeline/children.h"

struct children *fake_children_new(struct gpu *gpu); /* free() it */

/* All lanes of the device: what they held is lost, and nothing comes back until they are started
 * again. */
void fake_children_kill(struct children *children, const char *device);
/* How far their processes have gone down their ladders. */
void fake_children_step(struct children *children, const char *device, uint32_t step);
void fake_children_start(struct children *children, const char *device);
