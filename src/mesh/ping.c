#include "mesh/ping.h"

#include "base/bytes.h"

void ping_write(const struct ping *ping, uint8_t bytes[static PING_BYTES])
{
    bytes_store(bytes, 8, ping->number);
    bytes_store(bytes + 8, 8, ping->sent_ns);
}

void pong_write(const struct pong *pong, uint8_t bytes[static PONG_BYTES])
{
    bytes_store(bytes, 8, pong->number);
    bytes_store(bytes + 8, 8, pong->sent_ns);
    bytes_store(bytes + 16, 8, pong->received_ns);
    bytes_store(bytes + 24, 8, pong->answered_ns);
}

void burst_write(const struct burst *burst, uint8_t bytes[static BURST_BYTES_MIN])
{
    bytes_store(bytes, 4, burst->number);
    bytes_store(bytes + 4, 4, burst->place);
    bytes_store(bytes + 8, 4, burst->n_frames);
    bytes_store(bytes + 12, 4, 0);
}

void burst_report_write(const struct burst_report *report, uint8_t bytes[static BURST_REPORT_BYTES])
{
    bytes_store(bytes, 4, report->number);
    bytes_store(bytes + 4, 4, 0);
    bytes_store(bytes + 8, 8, report->bytes);
    bytes_store(bytes + 16, 8, report->ns);
}

static enum error_code ping_check(size_t size, size_t needed, const char *what, struct error *err)
{
    return size >= needed
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "%s of %zu bytes; it needs %zu", what, size, needed);
}

enum error_code ping_read(const uint8_t *bytes, size_t size, struct ping *ping, struct error *err)
{
    *ping = (struct ping){0};
    enum error_code code = ping_check(size, PING_BYTES, "a ping", err);
    if (!code)
        *ping = (struct ping){.number = bytes_load(bytes, 8), .sent_ns = bytes_load(bytes + 8, 8)};
    return code;
}

enum error_code pong_read(const uint8_t *bytes, size_t size, struct pong *pong, struct error *err)
{
    *pong = (struct pong){0};
    enum error_code code = ping_check(size, PONG_BYTES, "a pong", err);
    if (!code)
        *pong = (struct pong){
            .number = bytes_load(bytes, 8),
            .sent_ns = bytes_load(bytes + 8, 8),
            .received_ns = bytes_load(bytes + 16, 8),
            .answered_ns = bytes_load(bytes + 24, 8),
        };
    return code;
}

enum error_code burst_read(const uint8_t *bytes, size_t size, struct burst *burst,
                           struct error *err)
{
    *burst = (struct burst){0};
    enum error_code code = ping_check(size, BURST_BYTES_MIN, "a frame of a burst", err);
    if (code)
        return code;
    *burst = (struct burst){
        .number = (uint32_t)bytes_load(bytes, 4),
        .place = (uint32_t)bytes_load(bytes + 4, 4),
        .n_frames = (uint32_t)bytes_load(bytes + 8, 4),
    };
    if (burst->place >= burst->n_frames)
        return error_set(err, ERROR_INVALID, "frame %u of a burst of %u", burst->place,
                         burst->n_frames);
    return ERROR_NONE;
}

enum error_code burst_report_read(const uint8_t *bytes, size_t size, struct burst_report *report,
                                  struct error *err)
{
    *report = (struct burst_report){0};
    enum error_code code = ping_check(size, BURST_REPORT_BYTES, "a report of a burst", err);
    if (!code)
        *report = (struct burst_report){
            .number = (uint32_t)bytes_load(bytes, 4),
            .bytes = bytes_load(bytes + 8, 8),
            .ns = bytes_load(bytes + 16, 8),
        };
    return code;
}
