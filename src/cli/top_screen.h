/* What `medley top` shows of one sample. Pure. */
#pragma once

#include "base/buffer.h"
#include "heat/heat.h"

/* At most `height` lines (0: as many as there are) of at most `width` columns (at least 1), each
 * ended by '\n'. What is not known is "-". 80 columns show everything, of devices with short
 * ids. */
void top_screen(const struct heat_snapshot *snapshot, uint32_t width, uint32_t height,
                struct buffer *out);

/* The same for programs: one JSON object on one line, what is not known null. False: no memory. */
bool top_json(const struct heat_snapshot *snapshot, struct buffer *out);
