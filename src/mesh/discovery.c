#include "mesh/discovery_state.h"

#include "base/log.h"
#include "base/mem.h"
#include "mesh/discovery_record.h"

#include <assert.h>
#include <avahi-common/alternative.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { RESTART_MS = 10000, RENAME_MS = 250, RENAME_DOUBLINGS = 3, SIGHTS_MAX = 4096 };

/* ---- what is seen --------------------------------------------------------------------- */

static struct discovery_sight **discovery_find(struct discovery *discovery, AvahiIfIndex interface,
                                               AvahiProtocol protocol, const char *name)
{
    struct discovery_sight **at = &discovery->sights;
    while (*at && ((*at)->interface != interface || (*at)->protocol != protocol ||
                   strcmp((*at)->name, name) != 0))
        at = &(*at)->next;
    return at;
}

static bool discovery_is_seen(const struct discovery *discovery, const char *name)
{
    for (const struct discovery_sight *sight = discovery->sights; sight; sight = sight->next) {
        if (strcmp(sight->name, name) == 0)
            return true;
    }
    return false;
}

static uint32_t count_sights(const struct discovery *discovery)
{
    uint32_t n = 0;
    for (const struct discovery_sight *sight = discovery->sights; sight; sight = sight->next)
        n++;
    return n;
}

static void discovery_forget(struct discovery *discovery, struct discovery_sight **at)
{
    struct discovery_sight *sight = *at;
    *at = sight->next;
    avahi_s_service_resolver_free(sight->resolver);
    if (!discovery_is_seen(discovery, sight->name) && !discovery->closed &&
        strcmp(sight->name, discovery->name) != 0)
        discovery->handlers.lost(discovery->handlers.arg, sight->name);
    mem_free(sight);
}

static void discovery_see(struct discovery *discovery, AvahiIfIndex interface,
                          AvahiProtocol protocol, const char *name)
{
    struct discovery_sight **at = discovery_find(discovery, interface, protocol, name);
    if (*at || strlen(name) >= DISCOVERY_NAME_MAX || count_sights(discovery) >= SIGHTS_MAX)
        return;
    struct discovery_sight *sight = mem_new(sizeof *sight);
    if (!sight)
        return; /* it announces itself again */
    *sight = (struct discovery_sight){
        .discovery = discovery, .interface = interface, .protocol = protocol};
    strcpy(sight->name, name);
    sight->resolver = responder_resolve(discovery, interface, protocol, name);
    if (sight->resolver)
        *at = sight;
    else
        mem_free(sight);
}

void discovery_on_browse(struct discovery *discovery, AvahiBrowserEvent event,
                         AvahiIfIndex interface, AvahiProtocol protocol, const char *name)
{
    if (event == AVAHI_BROWSER_NEW) {
        discovery_see(discovery, interface, protocol, name);
    } else if (event == AVAHI_BROWSER_REMOVE) {
        struct discovery_sight **at = discovery_find(discovery, interface, protocol, name);
        if (*at)
            discovery_forget(discovery, at);
    }
}

void discovery_on_resolved(struct discovery *discovery, AvahiIfIndex interface, const char *name,
                           const AvahiAddress *address, uint16_t port, AvahiStringList *txt)
{
    struct discovery_peer peer;
    if (!discovery_record_read(name, port, txt, &peer.record) ||
        !discovery_address(address, port, (uint32_t)interface, &peer.address)) {
        log_line(LOG_DEBUG, "discovery",
                 "something announces itself as a Medley node but is not one");
        return;
    }
    if (strcmp(peer.record.id, discovery->own.id) != 0)
        discovery->handlers.found(discovery->handlers.arg, &peer);
}

/* ---- the responder -------------------------------------------------------------------- */

static int discovery_publish(struct discovery *discovery)
{
    AvahiStringList *txt = discovery_record_write(&discovery->own);
    int problem = txt ? responder_publish(discovery, txt) : AVAHI_ERR_NO_MEMORY;
    avahi_string_list_free(txt);
    return problem;
}

static void discovery_stop(struct discovery *discovery)
{
    while (discovery->sights)
        discovery_forget(discovery, &discovery->sights);
    discovery->name_taken = discovery->host_name_taken = false;
    responder_stop(discovery);
}

static void on_restart(uv_timer_t *timer)
{
    struct discovery *discovery = timer->data;
    discovery_stop(discovery);
    int problem = responder_start(discovery);
    if (!problem)
        return;
    log_line(LOG_WARN, "discovery", "cannot look for other machines (%s); next try in %d s",
             avahi_strerror(problem), RESTART_MS / 1000);
    uv_timer_start(&discovery->again, on_restart, RESTART_MS, 0);
}

static void not_announced(struct discovery *discovery, int problem)
{
    log_line(LOG_WARN, "discovery", "cannot announce this node: %s", avahi_strerror(problem));
    uv_timer_start(&discovery->again, on_restart, RESTART_MS, 0);
}

static void take_another_name(struct discovery *discovery)
{
    char *other = avahi_alternative_service_name(discovery->name);
    if (other && strlen(other) < DISCOVERY_NAME_MAX)
        strcpy(discovery->name, other);
    avahi_free(other);
    log_line(LOG_INFO, "discovery", "another node is called %s: announced as %s",
             discovery->own.name, discovery->name);
}

/* Under a new host name the node is announced when the responder is ready again.
 *
 * Avahi hears its own multicasts, and one that comes late contradicts a record that was changed
 * meanwhile. So after a change the first collision asks for the same name once more: a node that
 * really has it says so again. */
static void on_rename(uv_timer_t *timer)
{
    struct discovery *discovery = timer->data;
    const bool host_too = discovery->host_name_taken;
    if (discovery->name_taken && !discovery->echo_possible)
        take_another_name(discovery);
    discovery->name_taken = discovery->host_name_taken = discovery->echo_possible = false;
    int problem =
        host_too ? responder_take_another_host_name(discovery) : discovery_publish(discovery);
    if (problem)
        not_announced(discovery, problem);
}

/* Two machines of one name find it taken in the same instant, and both withdraw it (each may win by
 * one record and lose by another). They would meet again at the next name, and the next; so each
 * waits a time of its own first, drawn from more and more. */
static void rename_soon(struct discovery *discovery, bool *taken)
{
    *taken = true;
    uv_timer_start(&discovery->again, on_rename,
                   randombytes_uniform((uint32_t)RENAME_MS << discovery->n_doublings), 0);
    if (discovery->n_doublings < RENAME_DOUBLINGS)
        discovery->n_doublings++;
}

void discovery_on_state(struct discovery *discovery, enum discovery_state state, const char *reason)
{
    int problem = 0;
    switch (state) {
    case DISCOVERY_NAME_TAKEN:
        rename_soon(discovery, &discovery->name_taken);
        break;
    case DISCOVERY_HOST_NAME_TAKEN:
        rename_soon(discovery, &discovery->host_name_taken);
        break;
    case DISCOVERY_READY:
        problem = discovery_publish(discovery);
        if (!problem && !discovery->browser)
            problem = responder_browse(discovery);
        break;
    case DISCOVERY_FAILED:
        log_line(LOG_WARN, "discovery", "the mDNS responder ended (%s): restarting it", reason);
        uv_timer_start(&discovery->again, on_restart, 0, 0); /* not from inside its own callback */
        break;
    }
    if (problem)
        not_announced(discovery, problem);
}

/* ---- opening and closing -------------------------------------------------------------- */

static void on_all_closed(void *arg)
{
    struct discovery *discovery = arg;
    void (*closed)(void *) = discovery->closed;
    void *closed_arg = discovery->closed_arg;
    mem_free(discovery);
    closed(closed_arg);
}

static void discovery_on_timer_closed(uv_handle_t *handle)
{
    struct discovery *discovery = handle->data;
    avahi_loop_close(&discovery->avahi_loop, on_all_closed, discovery);
}

static void discovery_ignore(void *arg)
{
    (void)arg;
}

void discovery_close(struct discovery *discovery, void (*closed)(void *arg), void *arg)
{
    if (!discovery)
        return;
    discovery->closed = closed ? closed : discovery_ignore;
    discovery->closed_arg = arg;
    discovery_stop(discovery);
    uv_close((uv_handle_t *)&discovery->again, discovery_on_timer_closed);
}

static void set_own(struct discovery *discovery, const struct discovery_record *own)
{
    if (strcmp(discovery->own.name, own->name) != 0)
        strcpy(discovery->name, own->name);
    discovery->own = *own;
}

enum error_code discovery_open(uv_loop_t *loop, const struct discovery_record *own,
                               const struct discovery_handlers *handlers, struct discovery **out,
                               struct error *err)
{
    assert(own->name[0] && own->id[0] && own->port);
    struct discovery *discovery = mem_new(sizeof *discovery);
    if (!discovery)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for discovery");
    avahi_loop_init(&discovery->avahi_loop, loop);
    set_own(discovery, own);
    discovery->handlers = *handlers;
    uv_timer_init(loop, &discovery->again);
    discovery->again.data = discovery;
    int problem = responder_start(discovery);
    if (problem) {
        error_set(err, ERROR_IO, "multicast DNS does not work here (%s)", avahi_strerror(problem));
        discovery_close(discovery, NULL, NULL);
        return ERROR_IO;
    }
    *out = discovery;
    return ERROR_NONE;
}

enum error_code discovery_announce(struct discovery *discovery, const struct discovery_record *own,
                                   struct error *err)
{
    set_own(discovery, own);
    discovery->echo_possible = true;
    if (!discovery->browser)
        return ERROR_NONE; /* it is announced when the responder is ready */
    int problem = discovery_publish(discovery);
    return problem
               ? error_set(err, ERROR_IO, "cannot announce this node: %s", avahi_strerror(problem))
               : ERROR_NONE;
}
