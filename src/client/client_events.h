/* The events of a stream of answers (HTML standard, section 9.2), as far as their data goes. Pure;
 * fuzzed. A reader is the caller's memory, zeroed. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

struct client_events {
    struct buffer line; /* that is not whole yet */
};

/* More bytes; `tell` is called with the data of each event. False: a line has more than `max`
 * bytes, there is no memory, or `tell` wants no more. */
bool client_events_read(struct client_events *events, const char *bytes, size_t size, size_t max,
                        bool (*tell)(void *self, const char *data, size_t size), void *self);
void client_events_deinit(struct client_events *events);
