/* Connections that others dialled: how many may knock at once, and who decides what becomes of
 * them. */
#include "base/log.h"
#include "base/mem.h"
#include "mesh/greeting.h"
#include "mesh/link_state.h"
#include "mesh/resolve.h"
#include "mesh/stream_host.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- knocking ------------------------------------------------------------------------------ */

enum { GREETINGS_CLOSING = 2 * LIMIT_GREETINGS }; /* those that are being closed counted, too */

/* The incoming ones that are not over, the oldest first; how many. */
static uint32_t incoming_list(const struct mesh *mesh, struct greeting *found[GREETINGS_CLOSING],
                              struct crowd_member members[GREETINGS_CLOSING])
{
    uint32_t n = 0, n_all = 0;
    for (struct greeting *greeting = mesh->greetings; greeting; greeting = greeting->next)
        n_all += greeting->is_server && greeting->phase != GREETING_OVER;
    assert(n_all <= GREETINGS_CLOSING);
    for (struct greeting *greeting = mesh->greetings; greeting; greeting = greeting->next) {
        if (!greeting->is_server || greeting->phase == GREETING_OVER)
            continue;
        const uint32_t at = n_all - ++n; /* the list begins with the newest */
        found[at] = greeting;
        members[at] = (struct crowd_member){.host = greeting->host,
                                            .may_go = greeting->phase == GREETING_SHAKING ||
                                                      greeting->phase == GREETING_WAITING};
    }
    return n_all;
}

/* Where there is no room for one more, one that has said nothing yet has to go. */
static bool incoming_make_room(struct mesh *mesh, struct stream_host host)
{
    static const struct crowd_limits limits = {LIMIT_GREETINGS, LIMIT_GREETINGS_OF_HOST};
    struct greeting *found[GREETINGS_CLOSING];
    struct crowd_member members[GREETINGS_CLOSING];
    uint32_t n_incoming = 0;
    for (const struct greeting *greeting = mesh->greetings; greeting; greeting = greeting->next)
        n_incoming += greeting->is_server;
    if (n_incoming >= GREETINGS_CLOSING)
        return false;
    const int chosen = crowd_choose(members, incoming_list(mesh, found, members), &limits, host);
    if (chosen >= 0)
        greeting_abandon(found[chosen]);
    return chosen != CROWD_FULL;
}

void incoming_stream(struct mesh *mesh, struct stream *stream)
{
    const struct stream_host host = stream_host(stream);
    if (mesh->closing || !incoming_make_room(mesh, host)) {
        log_line(LOG_INFO, "mesh", "turned away a connection: %s",
                 mesh->closing ? "this node is stopping"
                               : "too many connections have not sent a hello yet");
        stream_close(stream, NULL, NULL);
        return;
    }
    struct greeting *greeting = greeting_new(mesh, stream, true);
    if (!greeting)
        return;
    greeting->host = host;
    greeting_begin(greeting);
}

/* ---- deciding ------------------------------------------------------------------------------ */

static void accept_control(struct greeting *greeting, const struct hello *hello)
{
    struct mesh *mesh = greeting->mesh;
    const uint32_t n_channels = hello->n_channels;
    const struct hello answer = mesh_hello(mesh, LINK_CONTROL, n_channels, hello->session);
    uint8_t peer[NODE_ID_BYTES];
    memcpy(peer, greeting->peer, sizeof peer);
    struct stream *stream;
    struct link *link;
    struct error err = {0};
    enum error_code code = greeting_accept(greeting, &answer, &stream, &err);
    if (!code)
        code = link_new(mesh, stream, peer, hello, n_channels, false, &link, &err);
    if (code)
        log_line(LOG_WARN, "mesh", "an incoming link was lost: %s", err.text);
}

static void hear_control(struct greeting *greeting, const struct hello *hello)
{
    struct mesh *mesh = greeting->mesh;
    struct link *link = mesh_find_any(mesh, greeting->peer);
    const struct resolve_state state = {
        .has_link = link != NULL,
        .link_is_ours = link && link->is_ours,
        .link_closes = link && link->phase == LINK_CLOSING,
        .same_boot = link && link->hello.boot == hello->boot,
        .dial_greeted = dials_have_greeted(mesh, greeting->peer),
        .we_are_lower = memcmp(mesh->options.node_id, greeting->peer, NODE_ID_BYTES) < 0,
    };
    switch (resolve_incoming(state)) {
    case RESOLVE_REFUSE:
        greeting_refuse(greeting, REFUSAL_DUPLICATE,
                        "there is a link already, or one is being made the other way");
        if (link)
            link_doubt(link);
        return;
    case RESOLVE_REPLACE:
        link_failf(link, ERROR_IO, "the peer has dialled anew");
        break;
    case RESOLVE_ACCEPT:
        if (mesh->n_links >= LIMIT_LINKS) {
            greeting_refuse(greeting, REFUSAL_BUSY, "this node has as many links as it can have");
            return;
        }
        break;
    }
    accept_control(greeting, hello);
}

static void hear_data(struct greeting *greeting, const struct hello *hello)
{
    struct mesh *mesh = greeting->mesh;
    struct link *link = mesh_find_any(mesh, greeting->peer);
    const bool fits = link && !link->is_ours && link->phase == LINK_OPENING &&
                      link->session == hello->session && link->hello.boot == hello->boot &&
                      hello->channel < link->n_channels && !link->channels[hello->channel].stream;
    if (!fits) {
        greeting_refuse(greeting, REFUSAL_NO_SUCH_LINK,
                        "there is no link that waits for this data channel");
        return;
    }
    const struct hello answer = mesh_hello(mesh, hello->channel, link->n_channels, hello->session);
    struct stream *stream;
    struct error err = {0};
    if (greeting_accept(greeting, &answer, &stream, &err))
        link_fail(link, &err);
    else
        link_attach(link, hello->channel, stream);
}

void incoming_hello(struct greeting *greeting, const struct hello *hello)
{
    if (greeting->mesh->closing)
        greeting_refuse(greeting, REFUSAL_STOPPING, "this node is stopping");
    else if (hello->channel == LINK_CONTROL)
        hear_control(greeting, hello);
    else
        hear_data(greeting, hello);
}
