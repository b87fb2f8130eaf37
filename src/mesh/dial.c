#include "mesh/dial.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/backoff.h"
#include "mesh/greeting.h"
#include "mesh/link_state.h"

#include <assert.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define MS_NS UINT64_C(1000000)
#define STEADY_NS UINT64_C(10000000000) /* a link that lasted so long was no failure */
#define LASTED_NS UINT64_C(1000000000)  /* and this long one that may well be had again */

static void try_next_address(struct dial *dial);

/* ---- waiting ------------------------------------------------------------------------------- */

static uint32_t count_waiting(const struct mesh *mesh)
{
    uint32_t n = 0;
    for (const struct dial *dial = mesh->dials; dial; dial = dial->next)
        n += dial->phase != DIAL_LINKED && dial->phase != DIAL_CLOSED;
    return n;
}

static uint64_t dial_gone_ms(const struct dial *dial)
{
    return (clock_now_ns() - dial->lost_ns) / MS_NS;
}

static void wait_and_retry(struct dial *dial, const struct error *why)
{
    struct mesh *mesh = dial->mesh;
    const uint64_t first_ms = mesh->options.dial_wait_ms, seed = mesh_random(mesh);
    dial->phase = DIAL_WAITING;
    dial->greeting = NULL;
    dial->status.n_failures++;
    dial->status.last = *why;
    const uint64_t wait_ms =
        dial->lost_ns ? backoff_again_ms(first_ms, dial_gone_ms(dial), count_waiting(mesh), seed)
                      : backoff_ms(first_ms, dial->status.n_failures, seed);
    log_line(LOG_INFO, "mesh", "dialling %s port %u again in %llu ms: %s", dial->host, dial->port,
             (unsigned long long)wait_ms, why->text);
    uv_timer_start(&dial->timer, dial->timer.timer_cb, wait_ms, 0);
}

/* ---- one attempt ----------------------------------------------------------------------------- */

static void dial_failed(void *owner, enum refusal_reason reason, const struct error *err)
{
    struct dial *dial = owner;
    dial->greeting = NULL;
    if (dial->phase != DIAL_GREETING)
        return;
    dial->status.last = *err;
    if (reason != REFUSAL_UNKNOWN)
        dial->lost_ns = 0; /* it is there, and does not want this: that takes longer to change */
    /* A refusal comes from the right node: its other addresses would say the same. */
    if (reason == REFUSAL_UNKNOWN && dial->next_address < dial->n_addresses)
        try_next_address(dial);
    else
        wait_and_retry(dial, err);
}

/* The peer has been authenticated: is it the one that was meant, and is it needed? */
static enum error_code dial_check(void *owner, struct greeting *greeting, struct error *err)
{
    struct dial *dial = owner;
    if (dial->status.has_node_id &&
        memcmp(dial->status.node_id, greeting->peer, NODE_ID_BYTES) != 0) {
        char text[NODE_ID_TEXT];
        id_text(greeting->peer, NODE_ID_BYTES, text);
        text[12] = '\0';
        return error_set(err, ERROR_INVALID, "another node answers at %s port %u: %s…", dial->host,
                         dial->port, text);
    }
    dial->status.has_node_id = true;
    memcpy(dial->status.node_id, greeting->peer, NODE_ID_BYTES);
    struct link *link = mesh_find_any(dial->mesh, greeting->peer);
    if (link)
        dials_see_link(dial->mesh, link); /* abandons this greeting */
    return ERROR_NONE;
}

/* ---- a data channel of a link that this node dialled ---- */

static void channel_failed(void *owner, enum refusal_reason reason, const struct error *err)
{
    struct link *link = owner;
    if (link)
        link_fail(link, err);
}

static enum error_code channel_check(void *owner, struct greeting *greeting, struct error *err)
{
    const struct link *link = owner;
    if (memcmp(link->peer, greeting->peer, NODE_ID_BYTES) != 0)
        return error_set(err, ERROR_INVALID, "another node answers for the data channel");
    return ERROR_NONE;
}

static void channel_answered(void *owner, struct greeting *greeting, const struct hello *hello)
{
    struct link *link = owner;
    const uint32_t index = greeting->ours.channel;
    struct stream *stream = greeting_take(greeting);
    const bool fits = hello->session == link->session && hello->boot == link->hello.boot &&
                      hello->channel == index;
    if (!fits)
        link_failf(link, ERROR_INVALID, "the other end answered for another channel");
    link_attach(link, index, stream);
}

static enum error_code open_channel(struct link *link, uint32_t index, struct error *err)
{
    struct mesh *mesh = link->mesh;
    struct stream *stream;
    enum error_code code = stream_sibling(link->channels[LINK_CONTROL].stream, &stream, err);
    if (code)
        return code;
    struct greeting *greeting = greeting_new(mesh, stream, false);
    if (!greeting)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a connection");
    greeting->ours = mesh_hello(mesh, index, link->n_channels, link->session);
    greeting->check = channel_check;
    greeting->answered = channel_answered;
    greeting->failed = channel_failed;
    greeting->owner = link;
    return ERROR_NONE;
}

static void dial_answered(void *owner, struct greeting *greeting, const struct hello *hello)
{
    struct dial *dial = owner;
    struct mesh *mesh = dial->mesh;
    struct error err = {0};
    uint8_t peer[NODE_ID_BYTES];
    memcpy(peer, greeting->peer, sizeof peer);
    const struct hello ours = greeting->ours;
    struct stream *stream = greeting_take(greeting);
    dial->greeting = NULL;
    struct link *link = NULL;
    enum error_code code = ERROR_NONE;
    if (hello->session != ours.session || hello->channel != LINK_CONTROL ||
        hello->n_channels > ours.n_channels) {
        stream_close(stream, NULL, NULL);
        code = error_set(&err, ERROR_INVALID, "the other end's hello does not match ours");
    } else {
        code = link_new(mesh, stream, peer, hello, hello->n_channels, true, &link, &err);
    }
    if (code) {
        wait_and_retry(dial, &err);
        return;
    }
    for (uint32_t i = LINK_DATA; i < link->n_channels && !code; i++)
        code = open_channel(link, i, &err);
    if (code)
        link_fail(link, &err);
}

static void try_next_address(struct dial *dial)
{
    struct mesh *mesh = dial->mesh;
    struct stream *stream;
    struct error err = {0};
    const struct sockaddr *address = (struct sockaddr *)&dial->addresses[dial->next_address++];
    dial->phase = DIAL_GREETING;
    if (mesh_connect(mesh, address, &stream, &err)) {
        dial_failed(dial, REFUSAL_UNKNOWN, &err);
        return;
    }
    struct greeting *greeting = greeting_new(mesh, stream, false);
    if (!greeting) {
        error_set(&err, ERROR_NO_MEMORY, "out of memory for a connection");
        dial_failed(dial, REFUSAL_UNKNOWN, &err);
        return;
    }
    const uint32_t n_data = mesh->options.n_data_channels;
    greeting->ours = mesh_hello(mesh, LINK_CONTROL, 1 + n_data, mesh_random(mesh));
    greeting->check = dial_check;
    greeting->answered = dial_answered;
    greeting->failed = dial_failed;
    greeting->owner = dial;
    dial->greeting = greeting;
    if (dial->lost_ns)
        uv_timer_start(&dial->timer, dial->timer.timer_cb, backoff_reach_ms(dial_gone_ms(dial)), 0);
}

/* A connection that nobody answers: the network's own next attempt may be seconds away. */
static void try_anew(struct dial *dial)
{
    struct error err;
    if (!dial->greeting || stream_reached(dial->greeting->stream))
        return;
    greeting_abandon(dial->greeting);
    error_set(&err, ERROR_IO, "nobody answers");
    dial_failed(dial, REFUSAL_UNKNOWN, &err);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void dial_release(struct dial *dial)
{
    if (--dial->n_open > 0)
        return;
    struct mesh *mesh = dial->mesh;
    if (dial->previous)
        dial->previous->next = dial->next;
    else
        mesh->dials = dial->next;
    if (dial->next)
        dial->next->previous = dial->previous;
    mesh->n_dials--;
    mem_free(dial);
    mesh_wake(mesh);
}

static void dial_take_addresses(struct dial *dial, const struct addrinfo *found)
{
    dial->n_addresses = dial->next_address = 0;
    for (; found && dial->n_addresses < DIAL_ADDRESSES_MAX; found = found->ai_next) {
        if (found->ai_family == AF_INET || found->ai_family == AF_INET6)
            memcpy(&dial->addresses[dial->n_addresses++], found->ai_addr, found->ai_addrlen);
    }
}

static void dial_on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *found)
{
    struct dial *dial = resolve->data;
    if (dial->phase == DIAL_RESOLVING) {
        struct error err;
        dial_take_addresses(dial, status ? NULL : found);
        if (dial->n_addresses > 0) {
            try_next_address(dial);
        } else {
            error_set(&err, ERROR_NOT_FOUND, "unknown host %s: %s", dial->host,
                      status ? uv_strerror(status) : "no address");
            wait_and_retry(dial, &err);
        }
    }
    uv_freeaddrinfo(found);
    dial_release(dial);
}

static void resolve_name(struct dial *dial)
{
    char port[8];
    snprintf(port, sizeof port, "%u", dial->port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    dial->phase = DIAL_RESOLVING;
    if (dial->n_open > 1) /* an earlier look-up is still under way: its answer will do */
        return;
    dial->resolve.data = dial;
    const int problem = uv_getaddrinfo(dial->mesh->options.loop, &dial->resolve, dial_on_resolved,
                                       dial->host, port, &hints);
    if (problem) {
        struct error err;
        error_set(&err, ERROR_IO, "cannot look up %s: %s", dial->host, uv_strerror(problem));
        wait_and_retry(dial, &err);
        return;
    }
    dial->n_open++;
}

static void dial_begin(uv_timer_t *timer)
{
    struct dial *dial = timer->data;
    if (dial->phase == DIAL_GREETING)
        try_anew(dial);
    if (dial->phase != DIAL_WAITING)
        return;
    struct link *link =
        dial->status.has_node_id ? mesh_find_any(dial->mesh, dial->status.node_id) : NULL;
    if (link) {
        dials_see_link(dial->mesh, link);
        return;
    }
    dial->n_addresses = 1;
    dial->next_address = 0;
    if (uv_ip4_addr(dial->host, dial->port, (struct sockaddr_in *)&dial->addresses[0]) == 0 ||
        uv_ip6_addr(dial->host, dial->port, (struct sockaddr_in6 *)&dial->addresses[0]) == 0)
        try_next_address(dial);
    else
        resolve_name(dial);
}

/* ---- what others see ------------------------------------------------------------------------- */

enum error_code mesh_dial(struct mesh *mesh, const struct mesh_target *target, struct dial **out,
                          struct error *err)
{
    *out = NULL;
    if (mesh->closing)
        return error_set(err, ERROR_CANCELLED, "the mesh is closing");
    if (mesh->n_dials >= LIMIT_DIAL_TARGETS)
        return error_set(err, ERROR_BUSY, "already dialling %d addresses", LIMIT_DIAL_TARGETS);
    const size_t length = target->host ? strlen(target->host) : 0;
    if (length == 0 || length >= sizeof((struct dial *)0)->host || target->port == 0)
        return error_set(err, ERROR_INVALID,
                         "a host name has 1 to 255 bytes, a port is 1 to 65535");
    struct dial *dial = mem_new(sizeof *dial);
    if (!dial)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a dial");
    dial->mesh = mesh;
    memcpy(dial->host, target->host, length + 1);
    dial->port = target->port;
    dial->status.has_node_id = target->has_node_id;
    memcpy(dial->status.node_id, target->node_id, NODE_ID_BYTES);
    dial->lost_ns = target->gone_ms ? clock_now_ns() - target->gone_ms * MS_NS : 0;
    dial->n_open = 1;
    uv_timer_init(mesh->options.loop, &dial->timer);
    dial->timer.data = dial;
    uv_timer_start(&dial->timer, dial_begin, 0, 0);
    dial->next = mesh->dials;
    if (dial->next)
        dial->next->previous = dial;
    mesh->dials = dial;
    mesh->n_dials++;
    *out = dial;
    return ERROR_NONE;
}

static void dial_on_timer_closed(uv_handle_t *timer)
{
    dial_release(timer->data);
}

void mesh_forget(struct mesh *mesh, struct dial *dial)
{
    if (!dial || dial->phase == DIAL_CLOSED)
        return;
    assert(dial->mesh == mesh);
    if (dial->phase == DIAL_RESOLVING)
        uv_cancel((uv_req_t *)&dial->resolve);
    dial->phase = DIAL_CLOSED;
    if (dial->greeting)
        greeting_abandon(dial->greeting);
    dial->greeting = NULL;
    uv_close((uv_handle_t *)&dial->timer, dial_on_timer_closed);
}

void dials_close(struct mesh *mesh)
{
    for (struct dial *dial = mesh->dials; dial; dial = dial->next)
        mesh_forget(mesh, dial);
}

static bool is_for(const struct dial *dial, const uint8_t node_id[NODE_ID_BYTES])
{
    return dial->phase != DIAL_CLOSED && dial->status.has_node_id &&
           memcmp(dial->status.node_id, node_id, NODE_ID_BYTES) == 0;
}

/* Each gets a time of its own, so that a thousand are not dialled at once. */
void mesh_hurry(struct mesh *mesh, const uint8_t *node_id)
{
    const uint64_t now_ns = clock_now_ns();
    const double spread_ms = (double)count_waiting(mesh) * BACKOFF_SPREAD_MS;
    for (struct dial *dial = mesh->dials; dial; dial = dial->next) {
        if (dial->phase != DIAL_WAITING || (node_id && !is_for(dial, node_id)) ||
            now_ns - dial->hurried_ns < LIMIT_DIAL_HURRY_MS * MS_NS)
            continue;
        const uint64_t soon_ms = (uint64_t)(random_unit_at(mesh_random(mesh), 0) * spread_ms);
        if (uv_timer_get_due_in(&dial->timer) <= soon_ms)
            continue;
        dial->hurried_ns = now_ns;
        uv_timer_start(&dial->timer, dial_begin, soon_ms, 0);
    }
}

struct dial_status dial_status(const struct dial *dial)
{
    struct dial_status status = dial->status;
    status.link = dial->link && dial->link->phase == LINK_UP ? dial->link : NULL;
    return status;
}

/* ---- what links tell ------------------------------------------------------------------------- */

void dials_see_link(struct mesh *mesh, struct link *link)
{
    for (struct dial *dial = mesh->dials; dial; dial = dial->next) {
        if (!is_for(dial, link->peer))
            continue;
        struct greeting *greeting = dial->greeting;
        dial->phase = DIAL_LINKED;
        dial->link = link;
        dial->greeting = NULL;
        uv_timer_stop(&dial->timer);
        if (greeting)
            greeting_abandon(greeting);
    }
}

void dials_link_up(struct mesh *mesh, struct link *link)
{
    for (struct dial *dial = mesh->dials; dial; dial = dial->next) {
        if (!is_for(dial, link->peer))
            continue;
        dial->status.last = (struct error){0};
        dial->lost_ns = 0;
    }
    mesh_hurry(mesh, NULL);
}

void dials_link_down(struct mesh *mesh, struct link *link, const struct error *why)
{
    for (struct dial *dial = mesh->dials; dial; dial = dial->next) {
        if (dial->phase == DIAL_CLOSED || dial->link != link)
            continue;
        dial->link = NULL;
        const uint64_t now_ns = clock_now_ns(), lasted_ns = link->was_up ? now_ns - link->up_ns : 0;
        if (lasted_ns > STEADY_NS)
            dial->status.n_failures = 0;
        if (lasted_ns > LASTED_NS)
            dial->lost_ns = now_ns;
        wait_and_retry(dial, why);
    }
}

bool dials_have_greeted(struct mesh *mesh, const uint8_t node_id[NODE_ID_BYTES])
{
    for (const struct dial *dial = mesh->dials; dial; dial = dial->next) {
        const struct greeting *greeting = dial->greeting;
        if (greeting && greeting->phase == GREETING_WAITING &&
            memcmp(greeting->peer, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}
