#include "api/resume.h"

#include "base/clock.h"
#include "base/fnv.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- request ids ----------------------------------------------------------------------------- */

bool request_id_is_sane(const char *text, size_t size)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+/=~@";
    if (size == 0 || size > LIMIT_REQUEST_ID_BYTES)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!memchr(allowed, text[i], sizeof allowed - 1))
            return false;
    }
    return true;
}

void request_id_draw(char out[LIMIT_REQUEST_ID_BYTES + 1])
{
    uint64_t words[2];
    if (getrandom(words, sizeof words, 0) !=
        (ssize_t)sizeof words) { /* only before the kernel has entropy */
        words[0] = random_mix(clock_now_ns());
        words[1] = random_mix(words[0] ^ (uintptr_t)out);
    }
    snprintf(out, LIMIT_REQUEST_ID_BYTES + 1, "req-%016" PRIx64 "%016" PRIx64, words[0], words[1]);
}

uint64_t request_id_number(const char *id, uint64_t purpose)
{
    return random_at(fnv_text(FNV_BASIS, id), purpose);
}

/* ---- positions ------------------------------------------------------------------------------- */

/* What is still to be read. */
struct cursor {
    const char *at, *end;
};

static bool resume_skip(struct cursor *cursor, char wanted)
{
    bool found = cursor->at < cursor->end && *cursor->at == wanted;
    cursor->at += found;
    return found;
}

static bool resume_read_count(struct cursor *cursor, uint32_t *out)
{
    uint64_t value = 0;
    const char *begin = cursor->at;
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        value = value * 10 + (uint64_t)(*cursor->at - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)value;
    return cursor->at > begin;
}

static bool read_check(struct cursor *cursor, uint32_t *out)
{
    static const char digits[] = "0123456789abcdef";
    *out = 0;
    for (unsigned i = 0; i < 8; i++, cursor->at++) {
        const char *digit = cursor->at < cursor->end ? memchr(digits, *cursor->at, 16) : NULL;
        if (!digit)
            return false;
        *out = *out << 4 | (uint32_t)(digit - digits);
    }
    return true;
}

static bool read_position(struct cursor *cursor, struct stream_position *out)
{
    if (!resume_read_count(cursor, &out->n_events))
        return false;
    out->is_checked = resume_skip(cursor, '-');
    return !out->is_checked || read_check(cursor, &out->check);
}

bool stream_positions_read(const char *text, size_t size, struct stream_position *out, uint32_t n,
                           struct api_error *err)
{
    struct cursor cursor = {text, text + size};
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++)
        ok = (i == 0 || resume_skip(&cursor, '.')) && read_position(&cursor, &out[i]);
    if (ok && cursor.at == cursor.end)
        return true;
    return api_error_field(
        err, "Last-Event-ID",
        "Last-Event-ID is not the id of an event of this request's stream, which has %u choice%s",
        n, n == 1 ? "" : "s");
}

void stream_position_write(const struct stream_position *position, struct buffer *out)
{
    buffer_printf(out, "%s%" PRIu32, out->size ? "." : "", position->n_events);
    if (position->is_checked)
        buffer_printf(out, "-%08" PRIx32, position->check);
}

/* FNV-1a of 32 bits. */
void stream_position_count(struct stream_position *position, struct text text)
{
    uint32_t hash = position->check ^ 0x811c9dc5u; /* zero stands for the beginning */
    for (size_t i = 0; i < text.size; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 0x01000193u;
    position->check = hash ^ 0x811c9dc5u;
    position->n_events++;
    position->is_checked = true;
}
