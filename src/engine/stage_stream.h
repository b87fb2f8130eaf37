/* A batch on a stage of which some layers are streamed: the scheduler stops at the ends of layers,
 * where the next one's weights are waited for and the last one's slot is given back. */
#pragma once

#include "base/error.h"

#include <stdint.h>

struct stage;

struct stage_stream_run {
    uint32_t next;  /* the layer of the stage that is not computed yet */
    uint32_t taken; /* streamed layers of this batch so far */
    enum error_code code;
    struct error error;
};

void stage_stream_watch(struct stage *stage); /* once, when the stage is open */

/* No-ops where nothing is streamed. What begin() has begun, end() must end. */
enum error_code stage_stream_begin(struct stage *stage, struct error *err);
enum error_code stage_stream_end(struct stage *stage, bool computed, struct error *err);
