#include "client/client_events.h"

#include <string.h>

/* The API writes an event's data in one line. */
static bool client_events_line(struct client_events *events,
                               bool (*tell)(void *self, const char *data, size_t size), void *self)
{
    static const char data[] = "data: ";
    const size_t before = sizeof data - 1;
    const bool is_data = events->line.size > before && memcmp(events->line.data, data, before) == 0;
    const bool goes_on =
        !is_data || tell(self, events->line.data + before, events->line.size - before);
    buffer_clear(&events->line);
    return goes_on;
}

bool client_events_read(struct client_events *events, const char *bytes, size_t size, size_t max,
                        bool (*tell)(void *self, const char *data, size_t size), void *self)
{
    while (size) {
        const char *end = memchr(bytes, '\n', size);
        const size_t part = end ? (size_t)(end - bytes) : size;
        if (events->line.size + part > max)
            return false;
        buffer_append(&events->line, bytes, part);
        if (events->line.failed || (end && !client_events_line(events, tell, self)))
            return false;
        bytes += part + (end != NULL);
        size -= part + (end != NULL);
    }
    return true;
}

void client_events_deinit(struct client_events *events)
{
    buffer_deinit(&events->line);
}
