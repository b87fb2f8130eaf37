#include "join/joining.h"

#include "base/limits.h"
#include "base/mem.h"
#include "join/join_message.h"
#include "join/joining_state.h"

#include <assert.h>
#include <string.h>

static uint64_t now_ms(const struct joining *joining)
{
    return join_clock_now(&joining->options.clock);
}

/* ---- the end --------------------------------------------------------------------------------- */

void joining_release(struct joining *joining)
{
    if (--joining->n_open > 0)
        return;
    joiner_deinit(&joining->machine);
    security_free_stranger(&joining->security);
    if (joining->closed)
        joining->closed(joining->closed_arg);
    mem_free(joining);
}

void joining_stream_closed(void *owner)
{
    joining_release(owner);
}

static void joining_on_timer_closed(uv_handle_t *timer)
{
    joining_release(timer->data);
}

/* `ended` is raised by the timer, when no call is under way. */
void joining_over(struct joining *joining, const struct error *why)
{
    if (joining->phase == JOINING_OVER)
        return;
    joining->why = *why;
    joining_disconnect(joining);
    joining->phase = JOINING_OVER;
    join_code_wipe(joining->code);
    if (joining->channel)
        join_channel_finish(joining->channel);
    joining_timer(joining, 0);
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* A message that cannot be kept from being lost changes nothing any more: this node is a member. */
static void say_done(struct joining *joining)
{
    struct buffer reply = {0};
    joining->is_member = true;
    joiner_done(&joining->machine, &reply);
    join_channel_send(joining->channel, &reply);
    buffer_deinit(&reply);
    joining->phase = JOINING_LEAVING;
    join_channel_expect(joining->channel, now_ms(joining) + LIMIT_JOIN_CONFIRM_MS);
}

static void joining_store(struct joining *joining)
{
    struct membership membership;
    struct buffer payload;
    const struct joining_events *events = &joining->options.events;
    joining->phase = JOINING_STORING;
    joiner_take(&joining->machine, &membership, &payload);
    if (events->joined(events->self, &membership, &payload)) {
        say_done(joining);
    } else {
        struct buffer reply = {0};
        struct error err = {0};
        joiner_refuse(&joining->machine, &reply, &err);
        error_set(&err, ERROR_IO, "this machine was let in, but could not store its membership");
        join_channel_send(joining->channel, &reply);
        joining_over(joining, &err);
        buffer_deinit(&reply);
    }
    if (joining->closing) /* from within the event */
        join_channel_finish(joining->channel);
}

static void joining_advance(struct joining *joining, enum join_result result,
                            const struct buffer *reply, const struct error *err)
{
    const struct joining_events *events = &joining->options.events;
    join_channel_send(joining->channel, reply);
    switch (result) {
    case JOIN_WAITING:
        join_channel_expect(joining->channel, joining->machine.deadline_ms);
        break;
    case JOIN_COMPARE:
        joining->phase = JOINING_COMPARING;
        join_channel_expect(joining->channel, joining->machine.deadline_ms);
        events->compare(events->self, joining->machine.session.words, joining->machine.peer_name);
        break;
    case JOIN_STORE:
        joining_store(joining);
        break;
    case JOIN_FAILED:
        joining_over(joining, err);
        break;
    case JOIN_DECIDE:
    case JOIN_OVER:
        assert(false && "not a joiner's");
        break;
    }
}

static void joining_start_machine(struct joining *joining)
{
    const struct joining_options *options = &joining->options;
    struct joiner_settings settings = {.identity = options->identity,
                                       .name = options->name,
                                       .mode = options->mode,
                                       .pace = options->pace};
    struct buffer reply = {0};
    struct error err = {0};
    memcpy(settings.binding, joining->binding, sizeof settings.binding);
    memcpy(settings.code, joining->code, sizeof settings.code);
    joining->phase = JOINING_TALKING;
    const enum error_code code =
        joiner_start(&joining->machine, &settings, now_ms(joining), &reply, &err);
    joining->machine_runs = !code;
    joining_advance(joining, code ? JOIN_FAILED : JOIN_WAITING, &reply, &err);
    join_code_wipe(settings.code);
    join_code_wipe(joining->code);
    buffer_deinit(&reply);
}

/* By hand: not before the pace allows it; another attempt of this machine may have been first. */
static void start_in_turn(struct joining *joining)
{
    const uint64_t now = now_ms(joining),
                   paused_until = joining->options.pace->hand_paused_until_ms;
    if (joining->options.mode == JOIN_BY_CODE || now >= paused_until || now >= joining->turn_by_ms)
        joining_start_machine(joining);
    else
        joining_timer(joining, paused_until - now);
}

/* ---- the channel's events -------------------------------------------------------------------- */

static void joining_on_message(void *self, const void *bytes, size_t size)
{
    struct joining *joining = self;
    struct buffer reply = {0};
    struct error err = {0};
    if (joining->phase == JOINING_PACING) {
        error_set(&err, ERROR_INVALID, "the member sent a message too early");
        joining_over(joining, &err);
        return;
    }
    if (joining->phase == JOINING_LEAVING) /* nothing that it says now changes anything */
        return;
    const enum join_result result =
        joiner_step(&joining->machine, now_ms(joining), bytes, size, &reply, &err);
    joining_advance(joining, result, &reply, &err);
    buffer_deinit(&reply);
}

static void joining_on_late(void *self)
{
    static const struct error unconfirmed = {
        ERROR_IO,
        "this machine is a member, but the one that let it in has not said that it knows"};
    struct joining *joining = self;
    struct buffer reply = {0};
    struct error err = {0};
    if (joining->phase == JOINING_LEAVING) {
        joining_over(joining, &unconfirmed);
        return;
    }
    const enum join_result result = joiner_tick(&joining->machine, now_ms(joining), &reply, &err);
    joining_advance(joining, result, &reply, &err);
    buffer_deinit(&reply);
}

static void joining_on_ended(void *self, bool in_order, const struct error *why)
{
    struct joining *joining = self;
    struct error err = {0};
    const char *who = joining->machine.peer_name[0] ? joining->machine.peer_name : joining->host;
    if (joining->phase == JOINING_LEAVING && !in_order)
        error_set(&err, why->code, "this machine is a member, but %s may not know that yet: %s",
                  who, why->text);
    else if (joining->phase != JOINING_LEAVING && in_order)
        error_set(&err, ERROR_BUSY, "%s closed the connection before it let this machine in", who);
    else if (joining->phase != JOINING_LEAVING)
        error_set(&err, why->code, "%s: %s", who, why->text);
    joining_over(joining, &err);
}

static void joining_on_channel_closed(void *self)
{
    struct joining *joining = self;
    joining->channel = NULL;
    joining_release(joining);
}

void joining_connected(struct joining *joining, struct stream *stream)
{
    const struct join_channel_events events = {
        joining_on_message, joining_on_late, joining_on_ended, joining_on_channel_closed, joining};
    struct error err = {0};
    uv_timer_stop(&joining->timer);
    joining->phase = JOINING_PACING;
    joining->turn_by_ms = now_ms(joining) + LIMIT_JOIN_TURN_MS;
    if (join_channel_open(joining->options.loop, stream, &joining->options.clock, &events,
                          &joining->channel, &err)) {
        joining_over(joining, &err);
        return;
    }
    joining->n_open++;
    start_in_turn(joining);
}

/* ---- the timer ------------------------------------------------------------------------------- */

static void joining_on_time(uv_timer_t *timer)
{
    struct joining *joining = timer->data;
    const struct joining_events *events = &joining->options.events;
    const uint64_t wait_ms = join_clock_wait(&joining->options.clock, joining->due_ms);
    if (wait_ms > 0) {
        uv_timer_start(timer, joining_on_time, wait_ms, 0);
        return;
    }
    switch (joining->phase) {
    case JOINING_LOOKING:
    case JOINING_SHAKING:
        joining_connect(joining);
        break;
    case JOINING_PACING:
        start_in_turn(joining);
        break;
    case JOINING_TALKING:
    case JOINING_COMPARING:
    case JOINING_STORING:
    case JOINING_LEAVING:
        break;
    case JOINING_OVER:
        if (!joining->told) {
            joining->told = true;
            events->ended(events->self, &joining->why);
        }
        break;
    }
}

void joining_timer(struct joining *joining, uint64_t ms)
{
    if (joining->closing)
        return;
    joining->due_ms = now_ms(joining) + ms;
    uv_timer_start(&joining->timer, joining_on_time,
                   join_clock_wait(&joining->options.clock, joining->due_ms), 0);
}

/* ---- the owner's calls ----------------------------------------------------------------------- */

static enum error_code joining_check(const struct joining_options *options,
                                     char code[JOIN_CODE_DIGITS], struct error *err)
{
    const size_t length = options->host ? strlen(options->host) : 0;
    if (length == 0 || length >= JOINING_HOST_MAX || options->port == 0)
        return error_set(err, ERROR_INVALID,
                         "a host name has 1 to 255 bytes, a port is 1 to 65535");
    if (!join_name_is_valid(options->name, strlen(options->name)))
        return error_set(err, ERROR_INVALID,
                         "the node's name must be 1 to 63 letters, digits, or one of . _ -");
    if (options->mode == JOIN_BY_CODE)
        return join_code_parse(options->code ? options->code : "", code, err);
    return ERROR_NONE;
}

enum error_code joining_open(const struct joining_options *options, struct joining **out,
                             struct error *err)
{
    *out = NULL;
    struct joining *joining = mem_new(sizeof *joining);
    if (!joining)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for joining");
    enum error_code code = joining_check(options, joining->code, err);
    if (!code)
        code = security_of_stranger(&joining->security, err);
    if (code) {
        join_code_wipe(joining->code);
        mem_free(joining);
        return code;
    }
    joining->options = *options;
    joining->options.code = NULL;
    joining->options.host = NULL;
    memcpy(joining->host, options->host, strlen(options->host));
    joining->n_open = 1;
    uv_timer_init(options->loop, &joining->timer);
    joining->timer.data = joining;
    joining_timer(joining, 0);
    *out = joining;
    return ERROR_NONE;
}

void joining_agree(struct joining *joining)
{
    static const struct error no_memory = {ERROR_NO_MEMORY, "out of memory"};
    struct buffer reply = {0};
    if (joining->phase != JOINING_COMPARING || joining->closing)
        return;
    joining->phase = JOINING_TALKING;
    joining_advance(joining, joiner_agree(&joining->machine, now_ms(joining), &reply), &reply,
                    &no_memory);
    buffer_deinit(&reply);
}

void joining_close(struct joining *joining, void (*closed)(void *arg), void *arg)
{
    assert(!joining->closing && "closed once");
    joining->closing = true;
    joining->closed = closed;
    joining->closed_arg = arg;
    if (joining->machine_runs &&
        (joining->phase == JOINING_TALKING || joining->phase == JOINING_COMPARING)) {
        struct buffer reply = {0};
        struct error err;
        joiner_refuse(&joining->machine, &reply, &err);
        join_channel_send(joining->channel, &reply);
        buffer_deinit(&reply);
    }
    joining_disconnect(joining);
    join_code_wipe(joining->code);
    if (joining->channel && joining->phase != JOINING_STORING)
        join_channel_finish(joining->channel);
    uv_close((uv_handle_t *)&joining->timer, joining_on_timer_closed);
}

uint64_t joining_again_ms(const struct joining *joining)
{
    const enum join_refusal refusal = joining->machine.refusal;
    const bool by_code = joining->options.mode == JOIN_BY_CODE;
    const bool code_is_useless =
        joining->why.code == ERROR_INVALID || refusal == JOIN_REFUSED_NO_CODE ||
        refusal == JOIN_REFUSED_DECLINED || joining->options.pace->n_shown >= LIMIT_JOIN_GUESSES;
    if (joining->is_member || (by_code && code_is_useless))
        return UINT64_MAX;
    return refusal == JOIN_REFUSED_DECLINED ? LIMIT_JOIN_DECLINED_MS : LIMIT_JOIN_PAUSE_MS;
}
