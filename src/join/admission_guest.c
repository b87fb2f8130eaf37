/* Guests: each an inviter machine and the channel to it. */
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "join/admission_state.h"
#include "join/join_session.h"

#include <assert.h>
#include <string.h>

/* ---- how a guest goes on --------------------------------------------------------------------- */

void guest_set_phase(struct guest *guest, enum guest_phase phase)
{
    guest->admission->changed |= guest->phase == GUEST_COMPARING || phase == GUEST_COMPARING;
    guest->phase = phase;
    admission_wake(guest->admission);
}

void guest_over(struct guest *guest, const struct error *why)
{
    const bool was_granted = guest->phase == GUEST_GRANTED;
    if (guest->phase == GUEST_OVER)
        return;
    guest->why = *why;
    guest->tell = true;
    guest_set_phase(guest, GUEST_OVER);
    if (guest->channel && was_granted &&
        why->code) /* an end in order would say that this member knows */
        join_channel_abort(guest->channel);
    else if (guest->channel)
        join_channel_finish(guest->channel);
    if (why->code)
        log_line(was_granted ? LOG_WARN : LOG_INFO, "join", "%s", why->text);
    else
        log_line(LOG_INFO, "join", "%s has joined", guest->machine.peer_name);
}

/* A node that waits here already, from an earlier connection, gives way to itself. */
static void replace_earlier(const struct guest *newer)
{
    for (struct guest *guest = newer->admission->guests; guest; guest = guest->next) {
        struct buffer reply = {0};
        struct error err;
        if (guest == newer || guest->phase != GUEST_COMPARING ||
            memcmp(guest->machine.peer_id, newer->machine.peer_id, NODE_ID_BYTES) != 0)
            continue;
        inviter_refuse(&guest->machine, "it has come a second time", &reply, &err);
        join_channel_send(guest->channel, &reply);
        guest_over(guest, &err);
        buffer_deinit(&reply);
    }
}

void guest_advance(struct guest *guest, enum join_result result, const struct buffer *reply,
                   const struct error *err)
{
    static const struct error none = {0};
    const uint64_t now = admission_now(guest->admission);
    join_channel_send(guest->channel, reply);
    switch (result) {
    case JOIN_WAITING:
        break;
    case JOIN_COMPARE:
        guest->since_ms = now;
        guest_set_phase(guest, GUEST_COMPARING);
        replace_earlier(guest);
        break;
    case JOIN_DECIDE:
        guest->decide_by_ms = now + LIMIT_JOIN_DECIDE_MS;
        guest->ask = true;
        guest_set_phase(guest, GUEST_DECIDING);
        break;
    case JOIN_OVER:
        guest_over(guest, &none);
        break;
    case JOIN_FAILED:
        guest_over(guest, err);
        break;
    case JOIN_STORE:
        assert(false && "a joiner's");
        break;
    }
    const bool decides =
        guest->phase == GUEST_DECIDING && guest->decide_by_ms < guest->machine.deadline_ms;
    join_channel_expect(guest->channel, decides ? guest->decide_by_ms : guest->machine.deadline_ms);
}

void guest_refuse(struct guest *guest, const char *why)
{
    struct buffer reply = {0};
    struct error err = {0};
    const enum join_result result = inviter_refuse(&guest->machine, why, &reply, &err);
    guest_advance(guest, result, &reply, &err);
    buffer_deinit(&reply);
}

/* ---- the channel's events -------------------------------------------------------------------- */

static void admission_guest_on_message(void *self, const void *bytes, size_t size)
{
    struct guest *guest = self;
    struct invite *invite = &guest->admission->invite;
    struct buffer reply = {0};
    struct error err = {0};
    const uint32_t n_wrong = invite->n_wrong;
    const enum join_result result =
        inviter_step(&guest->machine, admission_now(guest->admission), bytes, size, &reply, &err);
    if (invite->n_wrong > n_wrong)
        log_line(LOG_WARN, "join", "%s", err.text);
    guest_advance(guest, result, &reply, &err);
    buffer_deinit(&reply);
}

static void admission_guest_on_late(void *self)
{
    struct guest *guest = self;
    struct buffer reply = {0};
    struct error err = {0};
    const uint64_t now = admission_now(guest->admission);
    if (guest->phase == GUEST_DECIDING && now >= guest->decide_by_ms) {
        guest_refuse(guest, "the cluster has not taken it in in time: try again");
        return;
    }
    const enum join_result result = inviter_tick(&guest->machine, now, &reply, &err);
    guest_advance(guest, result, &reply, &err);
    buffer_deinit(&reply);
}

static void admission_guest_on_ended(void *self, bool in_order, const struct error *why)
{
    struct guest *guest = self;
    struct error err;
    const char *name =
        guest->machine.peer_name[0] ? guest->machine.peer_name : "a machine that wanted to join";
    (void)in_order;
    error_set(&err, why->code, "%s%s: %s", name,
              guest->phase == GUEST_GRANTED
                  ? " was let in but has not said that it knows (if it does not come up, remove it)"
                  : " has gone",
              why->text);
    guest_over(guest, &err);
}

static void admission_guest_on_channel_closed(void *self)
{
    struct guest *guest = self;
    guest->channel = NULL;
    admission_wake(guest->admission);
}

/* ---- coming ---------------------------------------------------------------------------------- */

static enum error_code admission_guest_start_machine(struct guest *guest, struct stream *stream,
                                                     struct error *err)
{
    const struct admission_options *options = &guest->admission->options;
    struct inviter_settings settings = {
        .identity = options->identity,
        .authority = options->authority,
        .name = options->name,
        .invite = &guest->admission->invite,
    };
    enum error_code code = credentials_channel_binding(stream_ssl(stream), settings.binding, err);
    return code ? code
                : inviter_init(&guest->machine, &settings, admission_now(guest->admission), err);
}

/* It cannot even begin: the other end is told why. */
static void admission_guest_turn_away(struct guest *guest, const struct error *err)
{
    struct buffer reply = {0};
    join_fail(&guest->machine.session,
              err->code == ERROR_UNSUPPORTED ? JOIN_REFUSED_NOT_ADMIN : JOIN_REFUSED_DECLINED,
              err->text, &reply);
    join_channel_send(guest->channel, &reply);
    guest_over(guest, err);
    buffer_deinit(&reply);
}

enum error_code guest_welcome(struct admission *admission, struct stream *stream,
                              struct stream_host host, struct error *err)
{
    struct guest *guest = mem_new(sizeof *guest);
    if (!guest) {
        stream_close(stream, NULL, NULL);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a machine that joins");
    }
    *guest = (struct guest){.admission = admission, .host = host, .id = ++admission->last_id};
    const struct join_channel_events events = {admission_guest_on_message, admission_guest_on_late,
                                               admission_guest_on_ended,
                                               admission_guest_on_channel_closed, guest};
    struct error refusal = {0};
    const enum error_code refused = admission_guest_start_machine(guest, stream, &refusal);
    enum error_code code = join_channel_open(
        admission->options.loop, stream, &admission->options.clock, &events, &guest->channel, err);
    if (code) {
        inviter_deinit(&guest->machine);
        mem_free(guest);
        return code;
    }
    guest->next = admission->guests;
    admission->guests = guest;
    admission->n_guests++;
    if (refused)
        admission_guest_turn_away(guest, &refusal);
    else
        join_channel_expect(guest->channel, guest->machine.deadline_ms);
    return ERROR_NONE;
}
