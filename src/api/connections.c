#include "api/connections.h"

#include <assert.h>
#include <stddef.h>

enum { CONNECTIONS_LEAST = 4 }; /* however few descriptors there are */

void connections_init(struct connections *connections, uint64_t n_max, uint64_t client_max,
                      uint32_t descriptors)
{
    *connections = (struct connections){.n_max = descriptors / 2};
    if (n_max < connections->n_max)
        connections->n_max = (uint32_t)n_max;
    if (connections->n_max < CONNECTIONS_LEAST)
        connections->n_max = CONNECTIONS_LEAST;
    connections->client_max = connections->n_max - connections->n_max / 4;
    if (client_max < connections->client_max)
        connections->client_max = (uint32_t)client_max;
    assert(connections->client_max > 0);
}

/* The first of `client` that waits (NULL: anybody's), and how many that client has. */
static struct connection *connections_find_waiting(const struct connections *connections,
                                                   const struct api_client *client, uint32_t *count)
{
    struct connection *found = NULL;
    *count = 0;
    for (struct connection *at = connections->first; at; at = at->next) {
        if (client && !api_client_is_same(&at->client, client))
            continue;
        ++*count;
        if (!found && !at->busy)
            found = at;
    }
    return found;
}

struct connection *connections_oldest(const struct connections *connections)
{
    uint32_t ignored;
    return connections_find_waiting(connections, NULL, &ignored);
}

struct connection *connections_overdue(const struct connections *connections, uint64_t now_ns)
{
    for (struct connection *at = connections->first; at; at = at->next) {
        if (at->head_by_ns && at->head_by_ns <= now_ns)
            return at;
    }
    return NULL;
}

bool connections_has_new(const struct connections *connections)
{
    for (const struct connection *at = connections->first; at; at = at->next) {
        if (at->head_by_ns)
            return true;
    }
    return false;
}

enum connections_room connections_room_for(const struct connections *connections,
                                           const struct api_client *client,
                                           struct connection **victim)
{
    uint32_t count;
    *victim = connections_find_waiting(connections, client, &count);
    assert(count <= connections->n);
    if (count >= connections->client_max)
        return *victim ? CONNECTIONS_CLOSE_ONE : CONNECTIONS_CLIENT_BUSY;
    if (connections->n < connections->n_max)
        return CONNECTIONS_ROOM;
    *victim = connections_oldest(connections);
    return *victim ? CONNECTIONS_CLOSE_ONE : CONNECTIONS_BUSY;
}

static void connections_append(struct connections *connections, struct connection *connection)
{
    connection->next = NULL;
    connection->before = connections->last;
    *(connection->before ? &connection->before->next : &connections->first) = connection;
    connections->last = connection;
}

static void connections_unlink(struct connections *connections, struct connection *connection)
{
    *(connection->before ? &connection->before->next : &connections->first) = connection->next;
    *(connection->next ? &connection->next->before : &connections->last) = connection->before;
    connection->next = connection->before = NULL;
}

void connections_add(struct connections *connections, struct connection *connection)
{
    assert(!connection->next && !connection->before && connection != connections->first);
    connections_append(connections, connection);
    connections->n++;
}

void connections_remove(struct connections *connections, struct connection *connection)
{
    assert(connections->n > 0);
    connections_unlink(connections, connection);
    connections->n--;
}

void connections_set_busy(struct connections *connections, struct connection *connection, bool busy)
{
    connection->busy = busy;
    connections_unlink(connections, connection);
    connections_append(connections, connection);
    assert(connections->last == connection);
}
