#include "cluster/wire.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cluster/members.h"

#include <assert.h>
#include <string.h>

enum { VERSION = 1 };
/* Nobody counts further in the life of a cluster. libraft (0.22.1, stepStartEmitMessage()) writes
 * four of these numbers into 64 bytes when it starts, so that one that is longer, once it is on the
 * disk, ends the process at every start: 10 digits of an index and 11 of a term fit. */
#define TERM_MAX (UINT64_C(1) << 36)
#define INDEX_MAX (UINT64_C(1) << 32)

/* ---- writing ---- */

static void put_byte(struct buffer *out, unsigned value)
{
    const uint8_t byte = (uint8_t)value;
    buffer_append(out, &byte, 1);
}

static void put_number(struct buffer *out, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++, value >>= 8)
        bytes[i] = (uint8_t)value;
    buffer_append(out, bytes, sizeof bytes);
}

static void put_numbers(struct buffer *out, const uint64_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_number(out, values[i]);
}

static void put_bytes(struct buffer *out, const uint8_t *bytes, size_t size)
{
    assert(size <= LIMIT_CLUSTER_MESSAGE_BYTES); /* four bytes say how many */
    for (unsigned shift = 0; shift < 32; shift += 8)
        put_byte(out, (unsigned)(size >> shift) & 255);
    buffer_append(out, bytes, size);
}

static void put_append(struct buffer *out, const struct wire_append *append)
{
    assert(append->entries.n <= LIMIT_CLUSTER_BATCH);
    const uint64_t numbers[] = {append->term, append->prev_index, append->prev_term, append->commit,
                                append->entries.n};
    put_numbers(out, numbers, 5);
    for (uint32_t i = 0; i < append->entries.n; i++) {
        const struct log_entry *entry = &append->entries.entries[i];
        put_number(out, entry->term);
        put_byte(out, entry->type);
        put_bytes(out, entry->bytes, entry->size);
    }
}

static void put_install(struct buffer *out, const struct wire_install *install)
{
    assert(install->snapshot.index); /* there is one */
    const struct log_snapshot *snapshot = &install->snapshot;
    const uint64_t numbers[] = {install->term, snapshot->index, snapshot->term,
                                snapshot->members_index};
    put_numbers(out, numbers, 4);
    put_bytes(out, snapshot->members, snapshot->members_size);
    put_bytes(out, snapshot->state, snapshot->state_size);
}

static void put_vote(struct buffer *out, const struct wire_vote *vote)
{
    const uint64_t numbers[] = {vote->term, vote->last_index, vote->last_term};
    put_numbers(out, numbers, 3);
    put_byte(out, vote->disrupt);
    put_byte(out, vote->pre_vote);
}

static void put_body(struct buffer *out, const struct wire_message *message)
{
    switch (message->type) {
    case WIRE_VOTE:
        put_vote(out, &message->vote);
        return;
    case WIRE_VOTE_RESULT:
        put_number(out, message->vote_result.term);
        put_byte(out, message->vote_result.granted);
        put_byte(out, message->vote_result.pre_vote);
        return;
    case WIRE_APPEND:
        put_append(out, &message->append);
        return;
    case WIRE_APPEND_RESULT:
        put_numbers(out,
                    (const uint64_t[]){message->append_result.term, message->append_result.rejected,
                                       message->append_result.last_index},
                    3);
        return;
    case WIRE_INSTALL:
        put_install(out, &message->install);
        return;
    case WIRE_TIMEOUT_NOW:
        put_numbers(out,
                    (const uint64_t[]){message->timeout_now.term, message->timeout_now.last_index,
                                       message->timeout_now.last_term},
                    3);
        return;
    case WIRE_STATUS:
        put_number(out, message->status.last_term);
        put_number(out, message->status.last_index);
        put_byte(out, message->status.led);
        put_byte(out, message->status.asks);
        return;
    case WIRE_UNKNOWN:
        break;
    }
    assert(message->type != WIRE_UNKNOWN); /* never sent */
}

void wire_encode(struct buffer *out, const struct wire_message *message)
{
    put_byte(out, VERSION);
    put_byte(out, message->type);
    put_number(out, message->lineage.generation);
    put_number(out, message->lineage.founder);
    put_body(out, message);
}

/* ---- reading: the first thing that is wrong stays in `wrong`, and all that is read after it is
 * zero  */

struct wire_reader {
    const uint8_t *bytes;
    size_t size, at;
    const char *wrong;
};

static const uint8_t *wire_take(struct wire_reader *in, size_t size)
{
    assert(in->at <= in->size);
    if (in->wrong || in->size - in->at < size) {
        if (!in->wrong)
            in->wrong = "it is cut off";
        return NULL;
    }
    in->at += size;
    return in->bytes + in->at - size;
}

static unsigned get_byte(struct wire_reader *in)
{
    const uint8_t *byte = wire_take(in, 1);
    return byte ? *byte : 0;
}

static bool get_flag(struct wire_reader *in)
{
    const unsigned value = get_byte(in);
    if (value > 1 && !in->wrong)
        in->wrong = "a flag is neither 0 nor 1";
    return value == 1;
}

static uint64_t get_any_number(struct wire_reader *in)
{
    const uint8_t *bytes = wire_take(in, 8);
    uint64_t value = 0;
    for (int i = 7; bytes && i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static uint64_t get_number(struct wire_reader *in, uint64_t max)
{
    const uint64_t value = get_any_number(in);
    if (value > max && !in->wrong)
        in->wrong = "a number is too large";
    return in->wrong ? 0 : value;
}

static uint64_t get_term(struct wire_reader *in)
{
    return get_number(in, TERM_MAX);
}

static uint64_t get_index(struct wire_reader *in)
{
    return get_number(in, INDEX_MAX);
}

/* Points into the message. */
static const uint8_t *get_bytes(struct wire_reader *in, size_t max, size_t *size)
{
    const uint8_t *length = wire_take(in, 4);
    *size = 0;
    if (!length)
        return NULL;
    const size_t n = (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 |
                     (size_t)length[3] << 24;
    if (n > max) {
        in->wrong = "it holds something that is too large";
        return NULL;
    }
    const uint8_t *bytes = wire_take(in, n);
    *size = bytes ? n : 0;
    return bytes;
}

static bool good_members(const uint8_t *bytes, size_t size)
{
    struct members *members = mem_new(sizeof *members);
    const bool good = members && members_decode(bytes, size, members, NULL) == ERROR_NONE;
    mem_free(members);
    return good;
}

static void get_entry(struct wire_reader *in, uint64_t term_min, uint64_t term_max,
                      struct log_entry *entry)
{
    entry->term = get_term(in);
    const unsigned type = get_byte(in);
    entry->bytes = (uint8_t *)(uintptr_t)get_bytes(in, LIMIT_CLUSTER_ENTRY_BYTES, &entry->size);
    entry->type = type == LOG_EVENT ? LOG_EVENT : type == LOG_BARRIER ? LOG_BARRIER : LOG_MEMBERS;
    if (in->wrong)
        return;
    if (type < LOG_EVENT || type > LOG_MEMBERS)
        in->wrong = "an entry is of no known type";
    else if (entry->term == 0 || entry->term < term_min || entry->term > term_max)
        in->wrong = "the terms of its entries are out of order";
    else if (entry->type == LOG_MEMBERS && !good_members(entry->bytes, entry->size))
        in->wrong = "a list of members is none";
}

static enum error_code get_append(struct wire_reader *in, struct wire_append *out,
                                  struct error *err)
{
    out->term = get_term(in);
    out->prev_index = get_index(in);
    out->prev_term = get_term(in);
    out->commit = get_index(in);
    const uint64_t n = get_index(in);
    if (n > LIMIT_CLUSTER_BATCH)
        in->wrong = "it has too many entries";
    if ((out->prev_index == 0) != (out->prev_term == 0) || out->prev_term > out->term)
        in->wrong = "the term before its entries cannot be";
    out->entries.first = out->prev_index + 1;
    uint64_t term = out->prev_term;
    for (uint64_t i = 0; i < n && !in->wrong; i++) {
        struct log_entry entry = {0};
        get_entry(in, term, out->term, &entry);
        term = entry.term;
        if (!in->wrong && log_append(&out->entries, &entry, err))
            return ERROR_NO_MEMORY;
    }
    return ERROR_NONE;
}

static enum error_code get_install(struct wire_reader *in, struct wire_install *out,
                                   struct error *err)
{
    struct log_snapshot snapshot = {0};
    out->term = get_term(in);
    snapshot.index = get_index(in);
    snapshot.term = get_term(in);
    snapshot.members_index = get_index(in);
    snapshot.members =
        (uint8_t *)(uintptr_t)get_bytes(in, LIMIT_CLUSTER_ENTRY_BYTES, &snapshot.members_size);
    snapshot.state =
        (uint8_t *)(uintptr_t)get_bytes(in, LIMIT_CLUSTER_SNAPSHOT_BYTES, &snapshot.state_size);
    if (in->wrong)
        return ERROR_NONE;
    if (!snapshot.index || !snapshot.term || snapshot.term > out->term || !snapshot.members_index ||
        snapshot.members_index > snapshot.index)
        in->wrong = "the numbers of its snapshot cannot be";
    else if (!good_members(snapshot.members, snapshot.members_size))
        in->wrong = "a list of members is none";
    else
        return log_snapshot_copy(&out->snapshot, &snapshot, err);
    return ERROR_NONE;
}

static void get_vote(struct wire_reader *in, struct wire_vote *out)
{
    out->term = get_term(in);
    out->last_index = get_index(in);
    out->last_term = get_term(in);
    out->disrupt = get_flag(in);
    out->pre_vote = get_flag(in);
    if (!in->wrong && (out->term == 0 || (out->last_index == 0) != (out->last_term == 0) ||
                       out->last_term > out->term))
        in->wrong = "its terms cannot be";
}

static enum error_code get_body(struct wire_reader *in, struct wire_message *out, struct error *err)
{
    switch (out->type) {
    case WIRE_VOTE:
        get_vote(in, &out->vote);
        break;
    case WIRE_VOTE_RESULT:
        out->vote_result.term = get_term(in);
        out->vote_result.granted = get_flag(in);
        out->vote_result.pre_vote = get_flag(in);
        break;
    case WIRE_APPEND:
        return get_append(in, &out->append, err);
    case WIRE_APPEND_RESULT:
        out->append_result.term = get_term(in);
        out->append_result.rejected = get_index(in);
        out->append_result.last_index = get_index(in);
        break;
    case WIRE_INSTALL:
        return get_install(in, &out->install, err);
    case WIRE_TIMEOUT_NOW:
        out->timeout_now.term = get_term(in);
        out->timeout_now.last_index = get_index(in);
        out->timeout_now.last_term = get_term(in);
        break;
    case WIRE_STATUS:
        out->status.last_term = get_term(in);
        out->status.last_index = get_index(in);
        out->status.led = get_flag(in);
        out->status.asks = get_flag(in);
        break;
    case WIRE_UNKNOWN:
        break;
    }
    return ERROR_NONE;
}

enum error_code wire_decode(const uint8_t *bytes, size_t size, struct wire_message *out,
                            struct error *err)
{
    *out = (struct wire_message){0};
    if (size > LIMIT_CLUSTER_MESSAGE_BYTES)
        return error_set(err, ERROR_INVALID,
                         "replica: a message of %zu bytes; at most %d are possible", size,
                         LIMIT_CLUSTER_MESSAGE_BYTES);
    struct wire_reader in = {.bytes = bytes, .size = size};
    const unsigned version = get_byte(&in), type = get_byte(&in);
    if (version == 0)
        in.wrong = "it has no version";
    out->type = type >= WIRE_VOTE && type <= WIRE_STATUS ? (enum wire_type)type : WIRE_UNKNOWN;
    out->lineage.generation = get_term(&in);
    out->lineage.founder = get_any_number(&in);
    const enum error_code code = get_body(&in, out, err);
    if (code == ERROR_NONE && !in.wrong)
        return ERROR_NONE;
    wire_clear(out);
    return code ? code : error_set(err, ERROR_INVALID, "replica: refused a message: %s", in.wrong);
}

void wire_clear(struct wire_message *message)
{
    if (message->type == WIRE_APPEND)
        log_deinit(&message->append.entries);
    else if (message->type == WIRE_INSTALL)
        log_snapshot_clear(&message->install.snapshot);
    *message = (struct wire_message){0};
}
