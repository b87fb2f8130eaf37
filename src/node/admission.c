#include "node/admission.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/join_session.h"
#include "mesh/stream_host.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* One that wants to be let in. */
enum guest_phase {
    GUEST_TALKING,
    GUEST_COMPARING, /* two persons */
    GUEST_DECIDING,  /* the owner */
    GUEST_GRANTED,
    GUEST_OVER,
};

struct guest {
    struct admission *admission;
    struct guest *next;
    uint64_t id, host;
    struct join_channel *channel; /* NULL: closed */
    struct inviter machine;
    enum guest_phase phase;
    uint64_t since_ms, decide_by_ms;
    bool ask;  /* `decide` is to be raised */
    bool tell; /* `ended` is */
    struct error why;
};

struct admission {
    struct admission_options options;
    struct invite invite;
    struct guest *guests;
    uint32_t n_guests;
    uint64_t last_id;
    uv_timer_t turn; /* raises events, and takes away who has gone */
    bool changed, closing, turn_is_closed;
    void (*closed)(void *arg);
    void *closed_arg;
};

static uint64_t now_ms(const struct admission *admission)
{
    return join_clock_now(&admission->options.clock);
}

/* ---- the turn: what is put off until no call is under way ----------------------------------- */

static void on_turn_closed(uv_handle_t *turn)
{
    struct admission *admission = turn->data;
    invite_end(&admission->invite);
    if (admission->closed)
        admission->closed(admission->closed_arg);
    mem_free(admission);
}

static void take_away(struct admission *admission)
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
    if (admission->changed && !admission->closing)
        events->changed(events->self);
    admission->changed = false;
    for (struct guest *guest = admission->guests; guest; guest = guest->next) {
        const struct inviter *machine = &guest->machine;
        if (guest->ask && guest->phase == GUEST_DECIDING && !admission->closing)
            events->decide(events->self, guest->id, machine->peer_id, machine->peer_name);
        guest->ask = false;
        if (guest->tell && events->ended && machine->peer_name[0] && !admission->closing)
            events->ended(events->self, guest->id, machine->peer_id, machine->peer_name, &guest->why);
        guest->tell = guest->tell && guest->phase != GUEST_OVER;
    }
}

static void on_turn(uv_timer_t *turn)
{
    struct admission *admission = turn->data;
    raise_events(admission);
    take_away(admission);
    if (admission->closing && !admission->guests && !admission->turn_is_closed) {
        admission->turn_is_closed = true;
        uv_close((uv_handle_t *)turn, on_turn_closed);
    }
}

static void wake(struct admission *admission)
{
    if (!admission->turn_is_closed)
        uv_timer_start(&admission->turn, on_turn, 0, 0);
}

/* ---- how a guest goes on --------------------------------------------------------------------- */

static void set_phase(struct guest *guest, enum guest_phase phase)
{
    guest->admission->changed |= guest->phase == GUEST_COMPARING || phase == GUEST_COMPARING;
    guest->phase = phase;
    wake(guest->admission);
}

static void over(struct guest *guest, const struct error *why)
{
    const bool was_granted = guest->phase == GUEST_GRANTED;
    if (guest->phase == GUEST_OVER)
        return;
    guest->why = *why;
    guest->tell = true;
    set_phase(guest, GUEST_OVER);
    if (guest->channel)
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
        over(guest, &err);
        buffer_deinit(&reply);
    }
}

static void advance(struct guest *guest, enum join_result result, const struct buffer *reply, const struct error *err)
{
    static const struct error none = {0};
    const uint64_t now = now_ms(guest->admission);
    join_channel_send(guest->channel, reply);
    switch (result) {
    case JOIN_WAITING:
        break;
    case JOIN_COMPARE:
        guest->since_ms = now;
        set_phase(guest, GUEST_COMPARING);
        replace_earlier(guest);
        break;
    case JOIN_DECIDE:
        guest->decide_by_ms = now + LIMIT_JOIN_DECIDE_MS;
        guest->ask = true;
        set_phase(guest, GUEST_DECIDING);
        break;
    case JOIN_OVER:
        over(guest, &none);
        break;
    case JOIN_FAILED:
        over(guest, err);
        break;
    case JOIN_STORE:
        assert(!"a joiner's");
        break;
    }
    const bool decides = guest->phase == GUEST_DECIDING && guest->decide_by_ms < guest->machine.deadline_ms;
    join_channel_expect(guest->channel, decides ? guest->decide_by_ms : guest->machine.deadline_ms);
}

static void refuse(struct guest *guest, const char *why)
{
    struct buffer reply = {0};
    struct error err = {0};
    const enum join_result result = inviter_refuse(&guest->machine, why, &reply, &err);
    advance(guest, result, &reply, &err);
    buffer_deinit(&reply);
}

/* ---- the channel's events -------------------------------------------------------------------- */

static void on_message(void *self, const void *bytes, size_t size)
{
    struct guest *guest = self;
    struct invite *invite = &guest->admission->invite;
    struct buffer reply = {0};
    struct error err = {0};
    const uint32_t n_wrong = invite->n_wrong;
    const enum join_result result = inviter_step(&guest->machine, now_ms(guest->admission), bytes, size, &reply, &err);
    if (invite->n_wrong > n_wrong)
        log_line(LOG_WARN, "join", "%s", err.text);
    advance(guest, result, &reply, &err);
    buffer_deinit(&reply);
}

static void on_late(void *self)
{
    struct guest *guest = self;
    struct buffer reply = {0};
    struct error err = {0};
    const uint64_t now = now_ms(guest->admission);
    if (guest->phase == GUEST_DECIDING && now >= guest->decide_by_ms) {
        refuse(guest, "the cluster has not taken it in in time: try again");
        return;
    }
    const enum join_result result = inviter_tick(&guest->machine, now, &reply, &err);
    advance(guest, result, &reply, &err);
    buffer_deinit(&reply);
}

static void on_ended(void *self, bool in_order, const struct error *why)
{
    struct guest *guest = self;
    struct error err;
    const char *name = guest->machine.peer_name[0] ? guest->machine.peer_name : "a machine that wanted to join";
    (void)in_order;
    error_set(&err, why->code, "%s%s: %s", name,
              guest->phase == GUEST_GRANTED
                  ? " was let in but has not said that it knows (if it does not come up, remove it)"
                  : " has gone",
              why->text);
    over(guest, &err);
}

static void on_channel_closed(void *self)
{
    struct guest *guest = self;
    guest->channel = NULL;
    wake(guest->admission);
}

/* ---- guests come ----------------------------------------------------------------------------- */

static bool has_room(const struct admission *admission, uint64_t host)
{
    uint32_t n_of_host = 0;
    for (const struct guest *guest = admission->guests; guest; guest = guest->next)
        n_of_host += guest->host == host;
    return admission->n_guests < LIMIT_JOIN_CHANNELS && n_of_host < LIMIT_JOIN_CHANNELS_OF_HOST;
}

static enum error_code start_machine(struct guest *guest, struct stream *stream, struct error *err)
{
    const struct admission_options *options = &guest->admission->options;
    struct inviter_settings settings = {
        .identity = options->identity,
        .authority = options->authority,
        .name = options->name,
        .invite = &guest->admission->invite,
    };
    enum error_code code = credentials_channel_binding(stream_ssl(stream), settings.binding, err);
    return code ? code : inviter_init(&guest->machine, &settings, now_ms(guest->admission), err);
}

/* It cannot even begin: the other end is told why. */
static void turn_away(struct guest *guest, const struct error *err)
{
    struct buffer reply = {0};
    join_fail(&guest->machine.session, JOIN_REFUSED_DECLINED, err->text, &reply);
    join_channel_send(guest->channel, &reply);
    over(guest, err);
    buffer_deinit(&reply);
}

static enum error_code welcome(struct admission *admission, struct stream *stream, uint64_t host, struct error *err)
{
    struct guest *guest = mem_new(sizeof *guest);
    if (!guest) {
        stream_close(stream, NULL, NULL);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a machine that joins");
    }
    *guest = (struct guest){.admission = admission, .host = host, .id = ++admission->last_id};
    const struct join_channel_events events = {on_message, on_late, on_ended, on_channel_closed, guest};
    struct error refusal = {0};
    const enum error_code refused = start_machine(guest, stream, &refusal);
    enum error_code code =
        join_channel_open(admission->options.loop, stream, &admission->options.clock, &events, &guest->channel, err);
    if (code) {
        inviter_deinit(&guest->machine);
        mem_free(guest);
        return code;
    }
    guest->next = admission->guests;
    admission->guests = guest;
    admission->n_guests++;
    if (refused)
        turn_away(guest, &refusal);
    else
        join_channel_expect(guest->channel, guest->machine.deadline_ms);
    return ERROR_NONE;
}

void admission_stream(struct admission *admission, struct stream *stream)
{
    struct error err = {0};
    const uint64_t host = stream_host(stream);
    if (admission->closing || !has_room(admission, host)) {
        error_set(&err, ERROR_BUSY, "a machine that wants to join was turned away: %s",
                  admission->closing ? "the node is stopping" : "too many are at it already");
        stream_close(stream, NULL, NULL);
    } else {
        welcome(admission, stream, host, &err);
    }
    if (err.code)
        log_line(LOG_INFO, "join", "%s", err.text);
}

/* ---- the owner's calls ------------------------------------------------------------------------ */

static struct guest *find(const struct admission *admission, uint64_t id, enum guest_phase phase)
{
    for (struct guest *guest = admission->guests; guest; guest = guest->next) {
        if (guest->id == id && guest->phase == phase)
            return guest;
    }
    return NULL;
}

static enum error_code not_there(struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "the machine does not wait to be let in any more");
}

enum error_code admission_agree(struct admission *admission, uint64_t id, struct error *err)
{
    static const struct buffer nothing;
    struct guest *guest = find(admission, id, GUEST_COMPARING);
    if (!guest)
        return not_there(err);
    if (guest->machine.we_agree)
        return ERROR_NONE;
    admission->changed = true;
    wake(admission);
    advance(guest, inviter_agree(&guest->machine, now_ms(admission)), &nothing, NULL);
    return ERROR_NONE;
}

enum error_code admission_refuse(struct admission *admission, uint64_t id, const char *why, struct error *err)
{
    struct guest *guest = find(admission, id, GUEST_COMPARING);
    if (!guest)
        guest = find(admission, id, GUEST_DECIDING);
    if (!guest)
        return not_there(err);
    refuse(guest, why ? why : "");
    return ERROR_NONE;
}

enum error_code admission_grant(struct admission *admission, uint64_t id, const void *payload, size_t size,
                                struct error *err)
{
    struct guest *guest = find(admission, id, GUEST_DECIDING);
    if (!guest)
        return not_there(err);
    const struct join_grant grant = {.with_key = true, .payload = payload, .payload_size = size};
    struct buffer reply = {0};
    struct error why = {0};
    const enum join_result result =
        inviter_grant(&guest->machine, &grant, now_ms(admission), (uint64_t)time(NULL), &reply, &why);
    if (result == JOIN_WAITING)
        set_phase(guest, GUEST_GRANTED);
    else if (err)
        *err = why;
    advance(guest, result, &reply, &why);
    buffer_deinit(&reply);
    return result == JOIN_WAITING ? ERROR_NONE : why.code;
}

enum error_code admission_invite(struct admission *admission, uint32_t minutes, char code[JOIN_CODE_TEXT],
                                 struct error *err)
{
    return invite_make(&admission->invite, now_ms(admission), (uint64_t)minutes * 60000, code, err);
}

bool admission_invited(struct admission *admission, char code[JOIN_CODE_TEXT], uint64_t *left_ms)
{
    const struct invite *invite = &admission->invite;
    const uint64_t now = now_ms(admission);
    if (invite_look(&admission->invite, now) != INVITE_OPEN)
        return false;
    invite_code(invite, code);
    *left_ms = invite->expires_ms - now;
    return true;
}

uint32_t admission_list(const struct admission *admission, struct admission_waiting *out, uint32_t n)
{
    uint32_t found = 0;
    for (const struct guest *guest = admission->guests; guest; guest = guest->next) {
        const struct inviter *machine = &guest->machine;
        if (guest->phase != GUEST_COMPARING)
            continue;
        if (found < n) {
            out[found] =
                (struct admission_waiting){.id = guest->id, .since_ms = guest->since_ms, .agreed = machine->we_agree};
            memcpy(out[found].node_id, machine->peer_id, NODE_ID_BYTES);
            memcpy(out[found].name, machine->peer_name, JOIN_NAME_TEXT);
            memcpy(out[found].words, machine->session.words, JOIN_WORDS_TEXT);
        }
        found++;
    }
    return found;
}

/* ---- opening and closing ------------------------------------------------------------------------ */

enum error_code admission_open(const struct admission_options *options, struct admission **out, struct error *err)
{
    struct admission *admission = mem_new(sizeof *admission);
    *out = NULL;
    if (!admission)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for letting machines in");
    admission->options = *options;
    uv_timer_init(options->loop, &admission->turn);
    admission->turn.data = admission;
    *out = admission;
    return ERROR_NONE;
}

void admission_close(struct admission *admission, void (*closed)(void *arg), void *arg)
{
    static const struct error stopping = {ERROR_CANCELLED, "a machine was being let in when the node stopped"};
    assert(!admission->closing && "closed once");
    admission->closing = true;
    admission->closed = closed;
    admission->closed_arg = arg;
    for (struct guest *guest = admission->guests; guest; guest = guest->next)
        over(guest, &stopping);
    wake(admission);
}
