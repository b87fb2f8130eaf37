#include "node/finder.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "join/book.h"
#include "mesh/host_port.h"
#include "node/daemon_state.h"
#include "node/knocks.h"
#include "node/peers.h"

#include <assert.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

enum {
    CONTACT_ADDRESSES = 16,
    FOUND_MAX = LIMIT_CLUSTER_NODES,
    ALONE_FAILURES = 5,
    ALONE_ROUNDS = 2
};

/* A node to dial, or an address that was given and whose node is not known yet. */
struct contact {
    struct contact *next;
    bool has_node_id, is_wanted;
    bool is_known; /* given, and its node has a contact of its own by now */
    uint8_t node_id[NODE_ID_BYTES];
    struct contact_address {
        char host[HOST_TEXT];
        uint16_t port;
    } addresses[CONTACT_ADDRESSES];
    uint32_t n, at, rounds;
    uint64_t since_ms; /* dialled at addresses[at] */
    struct dial *dial; /* NULL: not now */
};

struct finder {
    struct daemon *daemon;
    struct discovery *discovery; /* NULL: switched off, or closed */
    struct discovered_node *found;
    struct contact *contacts;
    uint64_t network; /* what the machine's addresses were; 0: not looked at yet */
    bool is_alone;    /* and that was told */
    void (*closed)(struct daemon *daemon);
};

/* ---- the network -------------------------------------------------------------------------- */

/* Another cable or radio, a machine that woke up: nobody waits for the next dial. */
void finder_look_at_network(struct finder *finder)
{
    uv_interface_address_t *interfaces = NULL;
    int n = 0;
    uint64_t now = 1;
    if (!finder->daemon->mesh || uv_interface_addresses(&interfaces, &n))
        return;
    for (int i = 0; i < n; i++) {
        char host[64] = "";
        uv_ip_name((const struct sockaddr *)&interfaces[i].address, host, sizeof host);
        for (const char *at = host; *at; at++)
            now = random_mix(now ^ (unsigned char)*at);
    }
    uv_free_interface_addresses(interfaces, n);
    if (finder->network && finder->network != now) {
        log_line(LOG_INFO, "node", "this machine's addresses have changed");
        mesh_hurry(finder->daemon->mesh, NULL);
    }
    finder->network = now;
}

/* ---- contacts -------------------------------------------------------------------------------
 *
 * One dial a node: several at once would be in each other's way. Where it does not answer, its next
 * address is tried.
 */

static struct contact *contact_of(struct finder *finder, const uint8_t *node_id, const char *host,
                                  uint16_t port)
{
    for (struct contact *contact = finder->contacts; contact; contact = contact->next) {
        if (node_id ? contact->has_node_id && memcmp(contact->node_id, node_id, NODE_ID_BYTES) == 0
                    : !contact->has_node_id && contact->addresses[0].port == port &&
                          strcmp(contact->addresses[0].host, host) == 0)
            return contact;
    }
    struct contact *contact = mem_new(sizeof *contact);
    if (!contact)
        return NULL;
    contact->has_node_id = node_id;
    if (node_id)
        memcpy(contact->node_id, node_id, NODE_ID_BYTES);
    contact->next = finder->contacts;
    finder->contacts = contact;
    return contact;
}

static void add_address_of(struct contact *contact, const char *host, uint16_t port)
{
    for (uint32_t i = 0; i < contact->n; i++) {
        if (contact->addresses[i].port == port && strcmp(contact->addresses[i].host, host) == 0)
            return;
    }
    /* A full list loses the one that was tried longest ago. */
    const uint32_t at =
        contact->n < CONTACT_ADDRESSES ? contact->n++ : (contact->at + 1) % CONTACT_ADDRESSES;
    snprintf(contact->addresses[at].host, HOST_TEXT, "%s", host);
    contact->addresses[at].port = port;
}

static void add_book_node(struct finder *finder, const Cluster__Node *node)
{
    uint8_t node_id[NODE_ID_BYTES];
    char host[HOST_TEXT];
    uint16_t port;
    if (strcmp(node->id, finder->daemon->id) == 0 || !id_parse(node->id, node_id, sizeof node_id))
        return;
    struct contact *contact = contact_of(finder, node_id, NULL, 0);
    for (size_t i = 0; contact && i < node->n_addresses && i < ADDRESSES_MAX; i++) {
        contact->is_wanted = true;
        if (host_port_parse(node->addresses[i], DAEMON_PORT, host, &port, NULL) == ERROR_NONE)
            add_address_of(contact, host, port);
    }
}

static void add_found(struct finder *finder)
{
    char cluster[CLUSTER_ID_TEXT];
    uint8_t node_id[NODE_ID_BYTES];
    id_text(finder->daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, cluster);
    for (struct discovered_node *found = finder->found; found; found = found->next) {
        if (strcmp(found->record.cluster, cluster) != 0 ||
            !id_parse(found->record.id, node_id, sizeof node_id) ||
            !book_admits(finder->daemon->book, node_id))
            continue;
        struct contact *contact = contact_of(finder, node_id, NULL, 0);
        if (contact) {
            contact->is_wanted = true;
            add_address_of(contact, found->host, found->port);
        }
    }
}

/* A member's own dial goes to that address already, and has not failed: a second would be in its
 * way. */
static bool is_dialled(const struct finder *finder, const char *host, uint16_t port)
{
    for (const struct contact *contact = finder->contacts; contact; contact = contact->next) {
        if (!contact->has_node_id || !contact->is_wanted ||
            (contact->dial && dial_status(contact->dial).n_failures))
            continue;
        for (uint32_t i = 0; i < contact->n; i++) {
            if (contact->addresses[i].port == port && strcmp(contact->addresses[i].host, host) == 0)
                return true;
        }
    }
    return false;
}

/* Until the dial has found out which node it is: then the node's own contact goes on. */
static void add_given(struct finder *finder)
{
    char host[HOST_TEXT];
    uint16_t port;
    struct error err;
    for (uint32_t i = 0; i < finder->daemon->options.n_peers; i++) {
        if (host_port_parse(finder->daemon->options.peers[i], DAEMON_PORT, host, &port, &err)) {
            log_line(LOG_WARN, "node", "--peer: %s", err.text);
            continue;
        }
        struct contact *contact =
            is_dialled(finder, host, port) ? NULL : contact_of(finder, NULL, host, port);
        if (!contact)
            continue;
        add_address_of(contact, host, port);
        contact->is_wanted = !contact->is_known;
    }
}

static void finder_hang_up(struct finder *finder, struct contact *contact)
{
    if (contact->dial)
        mesh_forget(finder->daemon->mesh, contact->dial);
    contact->dial = NULL;
}

/* Since the last link to it ended; 0: none did. */
static uint64_t finder_gone_ms(const struct finder *finder, const struct contact *contact)
{
    char id[NODE_ID_TEXT];
    id_text(contact->node_id, NODE_ID_BYTES, id);
    const struct peer *peer = contact->has_node_id ? daemon_peer(finder->daemon, id) : NULL;
    return peer && peer->down_ms ? daemon_now_ms(finder->daemon) - peer->down_ms + 1 : 0;
}

static void finder_dial_contact(struct finder *finder, struct contact *contact)
{
    const struct contact_address *to = &contact->addresses[contact->at];
    struct mesh_target target = {
        .host = to->host, .port = to->port, .has_node_id = contact->has_node_id};
    struct error err;
    memcpy(target.node_id, contact->node_id, NODE_ID_BYTES);
    target.gone_ms = finder_gone_ms(finder, contact);
    contact->since_ms = daemon_now_ms(finder->daemon);
    if (mesh_dial(finder->daemon->mesh, &target, &contact->dial, &err))
        log_line(LOG_WARN, "node", "cannot dial %s port %u: %s", to->host, to->port, err.text);
}

static void drop_unwanted(struct finder *finder)
{
    for (struct contact **at = &finder->contacts; *at;) {
        struct contact *contact = *at;
        if (contact->is_wanted || contact->is_known) {
            at = &contact->next;
            continue;
        }
        *at = contact->next;
        finder_hang_up(finder, contact);
        mem_free(contact);
    }
}

void finder_sync(struct finder *finder)
{
    if (!finder->daemon->mesh || finder->daemon->stopping)
        return;
    for (struct contact *contact = finder->contacts; contact; contact = contact->next)
        contact->is_wanted = false;
    add_found(finder);
    for (size_t i = 0; i < book_size(finder->daemon->book); i++)
        add_book_node(finder, book_at(finder->daemon->book, i));
    add_given(finder);
    drop_unwanted(finder);
    finder_dial(finder);
}

static bool is_at_hand(struct finder *finder, const uint8_t *node_id)
{
    return memcmp(node_id, finder->daemon->identity.node_id, NODE_ID_BYTES) == 0 ||
           book_admits(finder->daemon->book, node_id);
}

struct error finder_version_problem(const struct finder *finder, const char *id)
{
    char text[NODE_ID_TEXT];
    for (const struct contact *contact = finder->contacts; contact; contact = contact->next) {
        if (!contact->has_node_id || !contact->dial)
            continue;
        const struct dial_status status = dial_status(contact->dial);
        id_text(contact->node_id, NODE_ID_BYTES, text);
        if (!status.link && status.last.code == ERROR_UNSUPPORTED && strcmp(text, id) == 0)
            return status.last;
    }
    return (struct error){0};
}

struct error finder_dial_problem(const struct finder *finder, const char *id,
                                 char address[FINDER_ADDRESS_BYTES])
{
    char text[NODE_ID_TEXT];
    address[0] = 0;
    for (const struct contact *contact = finder->contacts; contact; contact = contact->next) {
        if (!contact->has_node_id || !contact->dial)
            continue;
        const struct dial_status status = dial_status(contact->dial);
        id_text(contact->node_id, NODE_ID_BYTES, text);
        if (status.link || !status.n_failures || !status.last.code || strcmp(text, id) != 0)
            continue;
        const struct contact_address *at = &contact->addresses[contact->at];
        snprintf(address, FINDER_ADDRESS_BYTES, strchr(at->host, ':') ? "[%s]:%u" : "%s:%u",
                 at->host, (unsigned)at->port);
        return status.last;
    }
    return (struct error){0};
}

/* Once, until a link is up again: a node that was removed while it was away hears it nowhere
 * else. */
static void tell_when_alone(struct finder *finder)
{
    if (daemon_has_link(finder->daemon)) {
        finder->is_alone = false;
        return;
    }
    for (const struct contact *contact = finder->contacts; contact && !finder->is_alone;
         contact = contact->next) {
        const struct dial_status status =
            contact->dial ? dial_status(contact->dial) : (struct dial_status){0};
        if (!status.n_failures ||
            (status.n_failures < ALONE_FAILURES && contact->rounds < ALONE_ROUNDS))
            continue;
        finder->is_alone = true;
        daemon_say(finder->daemon,
                   "no node of the cluster is reached (%s: %s). If this machine was removed, "
                   "`medley leave` forgets it",
                   contact->addresses[contact->at].host, status.last.text);
    }
}

void finder_dial(struct finder *finder)
{
    const uint64_t now = daemon_now_ms(finder->daemon);
    for (struct contact *contact = finder->contacts; contact; contact = contact->next) {
        if (!contact->dial && contact->is_wanted && contact->n)
            finder_dial_contact(finder, contact);
        if (!contact->dial)
            continue;
        const struct dial_status status = dial_status(contact->dial);
        if (!contact->has_node_id && status.has_node_id && is_at_hand(finder, status.node_id)) {
            contact->is_known = true;
            contact->is_wanted = false;
            finder_hang_up(finder, contact);
            continue;
        }
        if (status.link)
            contact->rounds = 0;
        const uint64_t wait_ms =
            UINT64_C(1000) << (contact->rounds / contact->n < 5 ? contact->rounds / contact->n : 5);
        if (!status.link && status.n_failures && contact->n > 1 &&
            now - contact->since_ms >= wait_ms) {
            finder_hang_up(finder, contact);
            contact->at = (contact->at + 1) % contact->n;
            contact->rounds++;
            finder_dial_contact(finder, contact);
        }
    }
    tell_when_alone(finder);
}

/* ---- discovery ------------------------------------------------------------------------------ */

static struct discovery_record own_record(const struct finder *finder)
{
    struct discovery_record record = {.version_major = LINK_MAJOR,
                                      .version_minor = LINK_MINOR,
                                      .port = finder->daemon->port ? finder->daemon->port : 1};
    snprintf(record.name, sizeof record.name, "%.63s", finder->daemon->name);
    snprintf(record.id, sizeof record.id, "%s", finder->daemon->id);
    if (finder->daemon->is_member)
        id_text(finder->daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, record.cluster);
    return record;
}

static void on_found(void *arg, const struct discovery_peer *peer)
{
    struct finder *finder = arg;
    struct discovered_node *found = finder->found;
    uint32_t n = 0;
    char host[256];
    socklen_t size = peer->address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                         : sizeof(struct sockaddr_in);
    if (getnameinfo((const struct sockaddr *)&peer->address, size, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST))
        return;
    for (; found &&
           (strcmp(found->record.id, peer->record.id) != 0 || strcmp(found->host, host) != 0);
         n++)
        found = found->next;
    if (!found) {
        found = n < FOUND_MAX ? mem_new(sizeof *found)
                              : NULL; /* anybody on the network may make up names */
        if (!found)
            return;
        found->next = finder->found;
        finder->found = found;
    }
    found->record = peer->record;
    found->port = peer->record.port;
    snprintf(found->host, sizeof found->host, "%s", host);
    log_line(LOG_DEBUG, "node", "found %s at %s port %u", found->record.name, host, found->port);
    uint8_t node_id[NODE_ID_BYTES];
    if (finder->daemon->mesh && id_parse(found->record.id, node_id, sizeof node_id))
        mesh_hurry(finder->daemon->mesh, node_id);
    if (finder->daemon->is_member)
        finder_sync(finder);
    else
        knocks_step(finder->daemon->knocks);
}

static void on_lost(void *arg, const char *name)
{
    struct finder *finder = arg;
    for (struct discovered_node **at = &finder->found; *at;) {
        struct discovered_node *found = *at;
        if (strcmp(found->record.name, name) != 0) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        mem_free(found);
    }
}

enum error_code finder_open(struct daemon *daemon, struct finder **out, struct error *err)
{
    struct finder *finder = mem_new(sizeof *finder);
    *out = finder;
    if (!finder)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to find other nodes");
    finder->daemon = daemon;
    if (daemon->options.no_discovery)
        return ERROR_NONE;
    const struct discovery_record record = own_record(finder);
    const struct discovery_handlers handlers = {on_found, on_lost, finder};
    return discovery_open(daemon->loop, &record, &handlers, &finder->discovery, err);
}

void finder_announce(struct finder *finder)
{
    const struct discovery_record record = own_record(finder);
    struct error err;
    if (finder->discovery && discovery_announce(finder->discovery, &record, &err))
        log_line(LOG_WARN, "node", "discovery: %s", err.text);
}

const struct discovered_node *finder_found(const struct finder *finder)
{
    return finder->found;
}

bool finder_sees_a_cluster(const struct finder *finder)
{
    for (const struct discovered_node *found = finder->found; found; found = found->next) {
        if (found->record.cluster[0])
            return true;
    }
    return false;
}

bool finder_is_alone(const struct finder *finder)
{
    return finder->is_alone;
}

static void on_discovery_closed(void *arg)
{
    struct finder *finder = arg;
    struct daemon *daemon = finder->daemon;
    void (*closed)(struct daemon *daemon) = finder->closed;
    daemon->finder = NULL;
    mem_free(finder);
    closed(daemon);
}

void finder_close(struct finder *finder, void (*closed)(struct daemon *daemon))
{
    struct discovery *discovery = finder->discovery;
    assert(!finder->daemon->mesh); /* the dials are the mesh's, and went with it */
    finder->discovery = NULL;
    finder->closed = closed;
    while (finder->found) {
        struct discovered_node *found = finder->found;
        finder->found = found->next;
        mem_free(found);
    }
    while (finder->contacts) {
        struct contact *contact = finder->contacts;
        finder->contacts = contact->next;
        mem_free(contact);
    }
    if (discovery)
        discovery_close(discovery, on_discovery_closed, finder);
    else
        on_discovery_closed(finder);
}
