/* What `medley top` shows of one sample. Pure. */
#pragma once

#include "base/buffer.h"
#include "node/heat.h"

/* Lines of at most `width` columns (at least 40), each ended by '\n'. What is not known is "-". */
void top_screen(const struct heat_snapshot *snapshot, uint32_t width, struct buffer *out);

/* The same for programs: one JSON object on one line, what is not known null. False: no memory. */
bool top_json(const struct heat_snapshot *snapshot, struct buffer *out);
