#include "join/admission.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "join/admission_state.h"
#include "mesh/stream_host.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* ---- the turn: what is put off until no call is under way ----------------------------------- */

static void on_turn_closed(uv_handle_t *turn)
{
    struct admission *admission = turn->data;
    invite_end(&admission->invite);
    if (admission->closed)
        admission->closed(admission->closed_arg);
    mem_free(admission);
}

static void admission_take_away(struct admission *admission)
{
    struct guest **place = &admission->guests;
    while (*place) {
        struct guest *guest = *place;
        if (guest->channel || guest->phase != GUEST_OVER || guest->tell) {
            place = &guest->next;
            continue;
        }
        *place = guest->next;
        admission->n_guests--;
        inviter_deinit(&guest->machine);
        mem_free(guest);
    }
}

static void raise_events(struct admission *admission)
{
    const struct admission_events *events = &admission->options.events;
    const bool changed = admission->changed;
    admission->changed = false;
    if (changed && !admission->closing)
        events->changed(events->self);
    for (struct guest *guest = admission->guests; guest; guest = guest->next) {
        const struct inviter *machine = &guest->machine;
        if (guest->ask && guest->phase == GUEST_DECIDING && !admission->closing)
            events->decide(events->self, guest->id, machine->peer_id, machine->peer_name);
        guest->ask = false;
        if (guest->tell && events->ended && machine->peer_name[0] && !admission->closing)
            events->ended(events->self, guest->id, machine->peer_id, machine->peer_name,
                          &guest->why);
        guest->tell = guest->tell && guest->phase != GUEST_OVER;
    }
}

static void on_turn(uv_timer_t *turn)
{
    struct admission *admission = turn->data;
    raise_events(admission);
    admission_take_away(admission);
    if (admission->closing && !admission->guests && !admission->turn_is_closed) {
        admission->turn_is_closed = true;
        uv_close((uv_handle_t *)turn, on_turn_closed);
    }
}

void admission_wake(struct admission *admission)
{
    if (!admission->turn_is_closed)
        uv_timer_start(&admission->turn, on_turn, 0, 0);
}

/* ---- guests come ----------------------------------------------------------------------------- */

enum { GUESTS_CLOSING = 2 * LIMIT_JOIN_CHANNELS }; /* those that are being closed counted, too */

/* Those that are not over, the oldest first; how many. One that two persons look at has said all
 * that it has to: it stays. */
static uint32_t admission_crowd(const struct admission *admission,
                                struct guest *found[GUESTS_CLOSING],
                                struct crowd_member members[GUESTS_CLOSING])
{
    uint32_t n = 0, n_all = 0;
    for (struct guest *guest = admission->guests; guest; guest = guest->next)
        n_all += guest->phase != GUEST_OVER;
    assert(n_all <= GUESTS_CLOSING);
    for (struct guest *guest = admission->guests; guest; guest = guest->next) {
        if (guest->phase == GUEST_OVER)
            continue;
        const uint32_t at = n_all - ++n; /* the list begins with the newest */
        found[at] = guest;
        members[at] =
            (struct crowd_member){.host = guest->host, .may_go = guest->phase == GUEST_TALKING};
    }
    return n_all;
}

/* Where there is no room for one more, one that has not got far has to go. */
static bool admission_make_room(struct admission *admission, struct stream_host host)
{
    static const struct crowd_limits limits = {LIMIT_JOIN_CHANNELS, LIMIT_JOIN_CHANNELS_OF_HOST};
    static const struct error crowded = {ERROR_BUSY, "another machine came while it was silent"};
    struct guest *found[GUESTS_CLOSING];
    struct crowd_member members[GUESTS_CLOSING];
    if (admission->n_guests >= GUESTS_CLOSING)
        return false;
    const int chosen =
        crowd_choose(members, admission_crowd(admission, found, members), &limits, host);
    if (chosen >= 0)
        guest_over(found[chosen], &crowded);
    return chosen != CROWD_FULL;
}

void admission_stream(struct admission *admission, struct stream *stream)
{
    struct error err = {0};
    const struct stream_host host = stream_host(stream);
    if (admission->closing || !admission_make_room(admission, host)) {
        error_set(&err, ERROR_BUSY, "turned away a machine that wants to join: %s",
                  admission->closing ? "this node is stopping" : "too many are joining already");
        stream_close(stream, NULL, NULL);
    } else {
        guest_welcome(admission, stream, host, &err);
    }
    if (err.code)
        log_line(LOG_INFO, "join", "%s", err.text);
}

/* ---- the owner's calls ----------------------------------------------------------------------- */

static struct guest *admission_find(const struct admission *admission, uint64_t id,
                                    enum guest_phase phase)
{
    for (struct guest *guest = admission->guests; guest; guest = guest->next) {
        if (guest->id == id && guest->phase == phase)
            return guest;
    }
    return NULL;
}

static enum error_code not_there(struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "the machine no longer waits to be let in");
}

enum error_code admission_agree(struct admission *admission, uint64_t id, struct error *err)
{
    static const struct buffer nothing;
    struct guest *guest = admission_find(admission, id, GUEST_COMPARING);
    if (!guest)
        return not_there(err);
    if (guest->machine.we_agree)
        return ERROR_NONE;
    admission->changed = true;
    admission_wake(admission);
    guest_advance(guest, inviter_agree(&guest->machine, admission_now(admission)), &nothing, NULL);
    return ERROR_NONE;
}

enum error_code admission_refuse(struct admission *admission, uint64_t id, const char *why,
                                 struct error *err)
{
    struct guest *guest = admission_find(admission, id, GUEST_COMPARING);
    if (!guest)
        guest = admission_find(admission, id, GUEST_DECIDING);
    if (!guest)
        return not_there(err);
    guest_refuse(guest, why ? why : "");
    return ERROR_NONE;
}

bool admission_is_by_code(const struct admission *admission, uint64_t id)
{
    const struct guest *guest = admission_find(admission, id, GUEST_DECIDING);
    return guest && guest->machine.session.mode == JOIN_BY_CODE;
}

enum error_code admission_grant(struct admission *admission, uint64_t id, bool with_key,
                                const void *payload, size_t size, struct error *err)
{
    struct guest *guest = admission_find(admission, id, GUEST_DECIDING);
    if (!guest)
        return not_there(err);
    const struct join_grant grant = {
        .with_key = with_key, .payload = payload, .payload_size = size};
    struct buffer reply = {0};
    struct error why = {0};
    const enum join_result result = inviter_grant(&guest->machine, &grant, admission_now(admission),
                                                  (uint64_t)time(NULL), &reply, &why);
    if (result == JOIN_WAITING)
        guest_set_phase(guest, GUEST_GRANTED);
    else if (err)
        *err = why;
    guest_advance(guest, result, &reply, &why);
    buffer_deinit(&reply);
    return result == JOIN_WAITING ? ERROR_NONE : why.code;
}

enum error_code admission_invite(struct admission *admission, uint32_t minutes,
                                 char code[JOIN_CODE_TEXT], struct error *err)
{
    return invite_make(&admission->invite, admission_now(admission), (uint64_t)minutes * 60000,
                       code, err);
}

bool admission_invited(struct admission *admission, char code[JOIN_CODE_TEXT], uint64_t *left_ms)
{
    const struct invite *invite = &admission->invite;
    const uint64_t now = admission_now(admission);
    if (invite_look(&admission->invite, now) != INVITE_OPEN)
        return false;
    invite_code(invite, code);
    *left_ms = invite->expires_ms - now;
    return true;
}

uint32_t admission_list(const struct admission *admission, struct admission_waiting *out,
                        uint32_t n)
{
    uint32_t found = 0;
    for (const struct guest *guest = admission->guests; guest; guest = guest->next) {
        const struct inviter *machine = &guest->machine;
        if (guest->phase != GUEST_COMPARING)
            continue;
        if (found < n) {
            out[found] = (struct admission_waiting){
                .id = guest->id, .since_ms = guest->since_ms, .agreed = machine->we_agree};
            memcpy(out[found].node_id, machine->peer_id, NODE_ID_BYTES);
            memcpy(out[found].name, machine->peer_name, JOIN_NAME_TEXT);
            memcpy(out[found].words, machine->session.words, JOIN_WORDS_TEXT);
        }
        found++;
    }
    return found;
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum error_code admission_open(const struct admission_options *options, struct admission **out,
                               struct error *err)
{
    struct admission *admission = mem_new(sizeof *admission);
    *out = NULL;
    if (!admission)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for joining machines");
    admission->options = *options;
    uv_timer_init(options->loop, &admission->turn);
    admission->turn.data = admission;
    *out = admission;
    return ERROR_NONE;
}

void admission_close(struct admission *admission, void (*closed)(void *arg), void *arg)
{
    static const struct error stopping = {ERROR_CANCELLED,
                                          "a machine was being let in when the node stopped"};
    assert(!admission->closing && "closed once");
    admission->closing = true;
    admission->closed = closed;
    admission->closed_arg = arg;
    for (struct guest *guest = admission->guests; guest; guest = guest->next)
        guest_over(guest, &stopping);
    admission_wake(admission);
}
