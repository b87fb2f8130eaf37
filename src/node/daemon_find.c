/* Who there is to talk to: what discovery finds, what the book says, what the user gave; and this
 * node's addresses. */
#include "node/daemon_state.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* ---- own addresses ------------------------------------------------------------------------- */

static void add_address(struct daemon *daemon, const char *host)
{
    if (daemon->n_addresses == ADDRESSES_MAX)
        return;
    bool v6 = strchr(host, ':');
    snprintf(daemon->addresses[daemon->n_addresses++], sizeof daemon->addresses[0],
             v6 ? "[%s]:%u" : "%s:%u", host, daemon->port);
}

/* A link-local IPv6 address means nothing without the interface, which has another name on every
 * machine. */
static bool can_be_told(const uv_interface_address_t *interface)
{
    if (interface->is_internal)
        return false;
    return interface->address.address4.sin_family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(&interface->address.address6.sin6_addr);
}

void daemon_find_addresses(struct daemon *daemon)
{
    uv_interface_address_t *interfaces = NULL;
    int n = 0;
    daemon->n_addresses = 0;
    if (daemon->options.host) {
        add_address(daemon, daemon->options.host);
        return;
    }
    if (uv_interface_addresses(&interfaces, &n))
        return;
    for (int i = 0; i < n; i++) {
        char host[64];
        if (can_be_told(&interfaces[i]) &&
            uv_ip_name((const struct sockaddr *)&interfaces[i].address, host, sizeof host) == 0)
            add_address(daemon, host);
    }
    uv_free_interface_addresses(interfaces, n);
}

/* Another cable or radio, a machine that woke up: nobody waits for the next dial. */
void daemon_look_at_network(struct daemon *daemon)
{
    uv_interface_address_t *interfaces = NULL;
    int n = 0;
    uint64_t now = 1;
    if (!daemon->mesh || uv_interface_addresses(&interfaces, &n))
        return;
    for (int i = 0; i < n; i++) {
        char host[64] = "";
        uv_ip_name((const struct sockaddr *)&interfaces[i].address, host, sizeof host);
        for (const char *at = host; *at; at++)
            now = random_mix(now ^ (unsigned char)*at);
    }
    uv_free_interface_addresses(interfaces, n);
    if (daemon->network && daemon->network != now) {
        log_line(LOG_INFO, "node", "this machine's addresses have changed");
        mesh_hurry(daemon->mesh, NULL);
    }
    daemon->network = now;
}

/* ---- contacts -------------------------------------------------------------------------------
 *
 * One dial a node: several at once would be in each other's way. Where it does not answer, its next
 * address is tried.
 */

static struct contact *contact_of(struct daemon *daemon, const uint8_t *node_id, const char *host,
                                  uint16_t port)
{
    for (struct contact *contact = daemon->contacts; contact; contact = contact->next) {
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
    contact->next = daemon->contacts;
    daemon->contacts = contact;
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

static void add_book_node(struct daemon *daemon, const Cluster__Node *node)
{
    uint8_t node_id[NODE_ID_BYTES];
    char host[HOST_TEXT];
    uint16_t port;
    if (strcmp(node->id, daemon->id) == 0 || !id_parse(node->id, node_id, sizeof node_id))
        return;
    struct contact *contact = contact_of(daemon, node_id, NULL, 0);
    for (size_t i = 0; contact && i < node->n_addresses && i < ADDRESSES_MAX; i++) {
        contact->is_wanted = true;
        if (host_port_parse(node->addresses[i], DAEMON_PORT, host, &port, NULL) == ERROR_NONE)
            add_address_of(contact, host, port);
    }
}

static void add_found(struct daemon *daemon)
{
    char cluster[CLUSTER_ID_TEXT];
    uint8_t node_id[NODE_ID_BYTES];
    id_text(daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, cluster);
    for (struct discovered_node *found = daemon->found; found; found = found->next) {
        if (strcmp(found->record.cluster, cluster) != 0 ||
            !id_parse(found->record.id, node_id, sizeof node_id) ||
            !book_admits(daemon->book, node_id))
            continue;
        struct contact *contact = contact_of(daemon, node_id, NULL, 0);
        if (contact) {
            contact->is_wanted = true;
            add_address_of(contact, found->host, found->port);
        }
    }
}

/* A member's own dial goes to that address already, and has not failed: a second would be in its
 * way. */
static bool is_dialled(const struct daemon *daemon, const char *host, uint16_t port)
{
    for (const struct contact *contact = daemon->contacts; contact; contact = contact->next) {
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
static void add_given(struct daemon *daemon)
{
    char host[HOST_TEXT];
    uint16_t port;
    struct error err;
    for (uint32_t i = 0; i < daemon->options.n_peers; i++) {
        if (host_port_parse(daemon->options.peers[i], DAEMON_PORT, host, &port, &err)) {
            log_line(LOG_WARN, "node", "--peer: %s", err.text);
            continue;
        }
        struct contact *contact =
            is_dialled(daemon, host, port) ? NULL : contact_of(daemon, NULL, host, port);
        if (!contact)
            continue;
        add_address_of(contact, host, port);
        contact->is_wanted = !contact->is_known;
    }
}

static void daemon_find_hang_up(struct daemon *daemon, struct contact *contact)
{
    if (contact->dial)
        mesh_forget(daemon->mesh, contact->dial);
    contact->dial = NULL;
}

/* Since the last link to it ended; 0: none did. */
static uint64_t daemon_find_gone_ms(const struct daemon *daemon, const struct contact *contact)
{
    char id[NODE_ID_TEXT];
    id_text(contact->node_id, NODE_ID_BYTES, id);
    const struct peer *peer = contact->has_node_id ? daemon_peer(daemon, id) : NULL;
    return peer && peer->down_ms ? daemon_now_ms(daemon) - peer->down_ms + 1 : 0;
}

static void daemon_find_dial(struct daemon *daemon, struct contact *contact)
{
    const struct contact_address *to = &contact->addresses[contact->at];
    struct mesh_target target = {
        .host = to->host, .port = to->port, .has_node_id = contact->has_node_id};
    struct error err;
    memcpy(target.node_id, contact->node_id, NODE_ID_BYTES);
    target.gone_ms = daemon_find_gone_ms(daemon, contact);
    contact->since_ms = daemon_now_ms(daemon);
    if (mesh_dial(daemon->mesh, &target, &contact->dial, &err))
        log_line(LOG_WARN, "node", "cannot dial %s port %u: %s", to->host, to->port, err.text);
}

static void drop_unwanted(struct daemon *daemon)
{
    for (struct contact **at = &daemon->contacts; *at;) {
        struct contact *contact = *at;
        if (contact->is_wanted || contact->is_known) {
            at = &contact->next;
            continue;
        }
        *at = contact->next;
        daemon_find_hang_up(daemon, contact);
        mem_free(contact);
    }
}

void daemon_sync_contacts(struct daemon *daemon)
{
    if (!daemon->mesh || daemon->stopping)
        return;
    for (struct contact *contact = daemon->contacts; contact; contact = contact->next)
        contact->is_wanted = false;
    add_found(daemon);
    for (size_t i = 0; i < book_size(daemon->book); i++)
        add_book_node(daemon, book_at(daemon->book, i));
    add_given(daemon);
    drop_unwanted(daemon);
    daemon_dial(daemon);
}

static bool is_at_hand(struct daemon *daemon, const uint8_t *node_id)
{
    return memcmp(node_id, daemon->identity.node_id, NODE_ID_BYTES) == 0 ||
           book_admits(daemon->book, node_id);
}

struct error daemon_version_problem(const struct daemon *daemon, const char *id)
{
    char text[NODE_ID_TEXT];
    for (const struct contact *contact = daemon->contacts; contact; contact = contact->next) {
        if (!contact->has_node_id || !contact->dial)
            continue;
        const struct dial_status status = dial_status(contact->dial);
        id_text(contact->node_id, NODE_ID_BYTES, text);
        if (!status.link && status.last.code == ERROR_UNSUPPORTED && strcmp(text, id) == 0)
            return status.last;
    }
    return (struct error){0};
}

/* Once, until a link is up again: a node that was removed while it was away hears it nowhere
 * else. */
static void tell_when_alone(struct daemon *daemon)
{
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (peer->link) {
            daemon->is_alone = false;
            return;
        }
    }
    for (const struct contact *contact = daemon->contacts; contact && !daemon->is_alone;
         contact = contact->next) {
        const struct dial_status status =
            contact->dial ? dial_status(contact->dial) : (struct dial_status){0};
        if (!status.n_failures ||
            (status.n_failures < ALONE_FAILURES && contact->rounds < ALONE_ROUNDS))
            continue;
        daemon->is_alone = true;
        daemon_say(daemon,
                   "no node of the cluster is reached (%s: %s). If this machine was removed, "
                   "`medley leave` forgets it",
                   contact->addresses[contact->at].host, status.last.text);
    }
}

void daemon_dial(struct daemon *daemon)
{
    const uint64_t now = daemon_now_ms(daemon);
    for (struct contact *contact = daemon->contacts; contact; contact = contact->next) {
        if (!contact->dial && contact->is_wanted && contact->n)
            daemon_find_dial(daemon, contact);
        if (!contact->dial)
            continue;
        const struct dial_status status = dial_status(contact->dial);
        if (!contact->has_node_id && status.has_node_id && is_at_hand(daemon, status.node_id)) {
            contact->is_known = true;
            contact->is_wanted = false;
            daemon_find_hang_up(daemon, contact);
            continue;
        }
        if (status.link)
            contact->rounds = 0;
        const uint64_t wait_ms =
            UINT64_C(1000) << (contact->rounds / contact->n < 5 ? contact->rounds / contact->n : 5);
        if (!status.link && status.n_failures && contact->n > 1 &&
            now - contact->since_ms >= wait_ms) {
            daemon_find_hang_up(daemon, contact);
            contact->at = (contact->at + 1) % contact->n;
            contact->rounds++;
            daemon_find_dial(daemon, contact);
        }
    }
    tell_when_alone(daemon);
}

/* The dials are the mesh's and go with it. */
void daemon_free_contacts(struct daemon *daemon)
{
    while (daemon->contacts) {
        struct contact *contact = daemon->contacts;
        daemon->contacts = contact->next;
        mem_free(contact);
    }
}

/* ---- discovery ------------------------------------------------------------------------------ */

static struct discovery_record own_record(const struct daemon *daemon)
{
    struct discovery_record record = {.version_major = LINK_MAJOR,
                                      .version_minor = LINK_MINOR,
                                      .port = daemon->port ? daemon->port : 1};
    snprintf(record.name, sizeof record.name, "%.63s", daemon->name);
    snprintf(record.id, sizeof record.id, "%s", daemon->id);
    if (daemon->is_member)
        id_text(daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, record.cluster);
    return record;
}

static void on_found(void *arg, const struct discovery_peer *peer)
{
    struct daemon *daemon = arg;
    struct discovered_node *found = daemon->found;
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
        found->next = daemon->found;
        daemon->found = found;
    }
    found->record = peer->record;
    found->port = peer->record.port;
    snprintf(found->host, sizeof found->host, "%s", host);
    log_line(LOG_DEBUG, "node", "found %s at %s port %u", found->record.name, host, found->port);
    uint8_t node_id[NODE_ID_BYTES];
    if (daemon->mesh && id_parse(found->record.id, node_id, sizeof node_id))
        mesh_hurry(daemon->mesh, node_id);
    if (daemon->is_member)
        daemon_sync_contacts(daemon);
    else
        daemon_knock(daemon);
}

static void on_lost(void *arg, const char *name)
{
    struct daemon *daemon = arg;
    for (struct discovered_node **at = &daemon->found; *at;) {
        struct discovered_node *found = *at;
        if (strcmp(found->record.name, name) != 0) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        mem_free(found);
    }
}

enum error_code daemon_find_open(struct daemon *daemon, struct error *err)
{
    if (daemon->options.no_discovery)
        return ERROR_NONE;
    const struct discovery_record record = own_record(daemon);
    const struct discovery_handlers handlers = {on_found, on_lost, daemon};
    return discovery_open(daemon->loop, &record, &handlers, &daemon->discovery, err);
}

void daemon_find_announce(struct daemon *daemon)
{
    const struct discovery_record record = own_record(daemon);
    struct error err;
    if (daemon->discovery && discovery_announce(daemon->discovery, &record, &err))
        log_line(LOG_WARN, "node", "discovery: %s", err.text);
}

void daemon_find_close(struct daemon *daemon, void (*closed)(void *arg))
{
    struct discovery *discovery = daemon->discovery;
    daemon->discovery = NULL;
    while (daemon->found) {
        struct discovered_node *found = daemon->found;
        daemon->found = found->next;
        mem_free(found);
    }
    discovery_close(discovery, closed, daemon);
}
