#include "replica_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

struct error err;

static void note_sent(struct stage *s, const struct replica_effect *effect)
{
    struct wire_message message;
    assert_int_equal(wire_decode(effect->bytes, effect->size, &message, &err), ERROR_NONE);
    if (message.type == WIRE_APPEND)
        log_deinit(&message.append.entries);
    else if (message.type == WIRE_INSTALL)
        log_snapshot_clear(&message.install.snapshot);
    assert_true(s->n_sent < SENT_MAX);
    s->to[s->n_sent] = effect->to;
    s->sent[s->n_sent++] = message;
}

void finish_one_write(struct stage *s)
{
    struct log_write done = s->writes[0];
    memmove(s->writes, s->writes + 1, --s->n_writes * sizeof s->writes[0]);
    assert_int_equal(log_saved_write(&s->disk, &done, &err), ERROR_NONE);
    replica_written(s->replica, s->now_ms, done.sequence);
    log_write_clear(&done);
}

void finish_writes(struct stage *s)
{
    while (s->n_writes)
        finish_one_write(s);
}

void look(struct stage *s)
{
    struct replica_effect effect;
    while (replica_next(s->replica, &effect)) {
        if (effect.type == REPLICA_SEND)
            note_sent(s, &effect);
        if (effect.type == REPLICA_APPLY)
            s->applied[s->n_applied++] = effect.index;
        if (effect.type == REPLICA_FAILED)
            fail_msg("%s", effect.failure.text);
        if (effect.type == REPLICA_WRITE) {
            s->writes[s->n_writes++] = effect.write;
            effect.write = (struct log_write){0};
        }
        replica_effect_clear(&effect);
        if (!s->hold_writes)
            finish_writes(s);
    }
}

static enum error_code begins_with_s(void *self, struct lineage lineage, const uint8_t *bytes,
                                     size_t size, struct error *why)
{
    assert_true(lineage.generation && !self);
    return size && bytes[0] == 's' ? ERROR_NONE : error_set(why, ERROR_INVALID, "it is no state");
}

void open_stage(struct stage *s)
{
    struct replica_options options = replica_options_default();
    options.id = SELF;
    options.grace_ms = 0;
    options.check_state = begins_with_s;
    if (replica_open(&options, &s->disk, s->now_ms, &s->replica, &err))
        fail_msg("%s", err.text);
    look(s);
}

void close_stage(struct stage *s)
{
    replica_close(s->replica);
    s->replica = NULL;
    for (uint32_t i = 0; i < s->n_writes; i++)
        log_write_clear(&s->writes[i]);
    s->n_writes = 0;
}

void new_stage(struct stage *s)
{
    memset(s, 0, sizeof *s);
    s->now_ms = 1000;
    open_stage(s);
}

void drop_stage(struct stage *s)
{
    close_stage(s);
    log_saved_clear(&s->disk);
}

enum error_code tell(struct stage *s, uint64_t from, struct wire_message message)
{
    struct buffer bytes = {0};
    if (!message.lineage.generation)
        message.lineage = (struct lineage){1, LEADER};
    wire_encode(&bytes, &message);
    err = (struct error){0};
    const enum error_code code =
        replica_receive(s->replica, s->now_ms, from, (uint8_t *)bytes.data, bytes.size, &err);
    buffer_deinit(&bytes);
    look(s);
    return code;
}

void hear(struct stage *s, uint64_t from, struct wire_message message)
{
    if (tell(s, from, message))
        fail_msg("%s", err.text);
}

const struct wire_message *last_sent(const struct stage *s, enum wire_type type)
{
    for (uint32_t i = s->n_sent; i-- > 0;) {
        if (s->sent[i].type == type)
            return &s->sent[i];
    }
    return NULL;
}

struct log_entry members_entry(uint64_t term, uint32_t votes, uint8_t *bytes)
{
    const uint64_t ids[] = {LEADER, SELF, 9};
    size_t n = 9;
    memset(bytes, 0, 64);
    bytes[0] = 1, bytes[1] = 3;
    for (int i = 0; i < 3; i++) {
        bytes[n] = (uint8_t)ids[i];
        n += 8;
        bytes[n++] = (uint8_t)('0' + ids[i]);
        bytes[n++] = 0;
        bytes[n++] = votes >> i & 1;
    }
    return (struct log_entry){term, LOG_MEMBERS, bytes, (n + 7) / 8 * 8};
}

struct log_entry event_entry(uint64_t term)
{
    return (struct log_entry){term, LOG_EVENT, (uint8_t *)(uintptr_t)"e", 1};
}

void append(struct stage *s, uint64_t term, uint64_t prev, uint64_t prev_term, uint64_t commit,
            struct log_entry *entries, uint32_t n)
{
    hear(s, LEADER,
         (struct wire_message){
             .type = WIRE_APPEND,
             .append = {
                 term, prev, prev_term, commit, {.first = prev + 1, .n = n, .entries = entries}}});
}
