#include "api/exchange_impl.h"
#include "api/listener.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>

static uint64_t exchange_room_held(const struct exchange *exchange, enum exchange_pool pool)
{
    return pool == EXCHANGE_BODIES ? exchange->body.size : exchange->unread;
}

static uint64_t exchange_room_held_by(const struct api_server *server, enum exchange_pool pool,
                                      const struct api_client *client)
{
    uint64_t bytes = 0;
    for (const struct exchange *at = server->exchanges; at; at = at->next) {
        if (api_client_is_same(&at->client, client))
            bytes += exchange_room_held(at, pool);
    }
    return bytes;
}

/* Of those that hold room, whose client could move and has not for the longest; NULL: none. A body
 * that has arrived waits for the server, not for its client. */
static struct exchange *exchange_room_find_stalled(struct exchange *asking, enum exchange_pool pool,
                                                   const struct api_client *client)
{
    const uint64_t now_ns = clock_now_ns(), patience_ns = EXCHANGE_STALLED_MS * UINT64_C(1000000);
    struct exchange *found = NULL;
    for (struct exchange *at = asking->server->exchanges; at; at = at->next) {
        if (at == asking || at->dead || !exchange_room_held(at, pool) ||
            (pool == EXCHANGE_BODIES && at->state != EXCHANGE_BODY) ||
            (client && !api_client_is_same(&at->client, client)) ||
            now_ns - at->moved_ns < patience_ns)
            continue;
        if (!found || at->moved_ns < found->moved_ns)
            found = at;
    }
    return found;
}

/* A body that lies is answered, which frees it; of an answer that lies the connection ends. */
static void exchange_room_close(struct exchange *victim, enum exchange_pool pool)
{
    struct api_error err;
    log_line(LOG_INFO, "api", "ended %s of %s, whose %s has lain for longest, to make room",
             victim->path, victim->client.share, pool == EXCHANGE_BODIES ? "body" : "answer");
    if (pool == EXCHANGE_ANSWERS) {
        listener_close_connection(victim->server, victim->connection);
        return;
    }
    api_error_set(&err, 408, "invalid_request_error", "timeout",
                  "the body did not move for %d s, and others needed the room",
                  EXCHANGE_STALLED_MS / 1000);
    victim->close_after = victim->linger = true;
    exchange_fail(victim, &err);
    assert(!victim->body.size);
}

static bool exchange_room_refuse(const struct api_server *server, enum exchange_pool pool,
                                 bool of_client, struct api_error *err)
{
    if (pool == EXCHANGE_BODIES && of_client)
        return API_LIMIT_ERROR(err, 429, &server->limits, client_bodies,
                               "this client has too many large requests at once");
    if (pool == EXCHANGE_BODIES)
        return API_LIMIT_ERROR(err, 503, &server->limits, bodies,
                               "too many large requests at once");
    if (of_client)
        return API_LIMIT_ERROR(err, 429, &server->limits, client_answers,
                               "this client has too many answers that it has not read");
    return API_LIMIT_ERROR(err, 503, &server->limits, answers,
                           "too many answers that nobody has read");
}

bool exchange_make_room(struct exchange *exchange, enum exchange_pool pool, uint64_t bytes,
                        struct api_error *err)
{
    struct api_server *server = exchange->server;
    const struct api_limits *limits = &server->limits;
    const uint64_t *held = pool == EXCHANGE_BODIES ? &server->body_bytes : &server->unread_bytes;
    const uint64_t max = pool == EXCHANGE_BODIES ? limits->bodies : limits->answers;
    const uint64_t client_max =
        pool == EXCHANGE_BODIES ? limits->client_bodies : limits->client_answers;
    for (;;) {
        /* one client has at most what all have: mostly there is nothing to add up */
        const bool of_client =
            *held + bytes > client_max &&
            exchange_room_held_by(server, pool, &exchange->client) + bytes > client_max;
        if (!of_client && *held + bytes <= max)
            return true;
        struct exchange *stalled =
            exchange_room_find_stalled(exchange, pool, of_client ? &exchange->client : NULL);
        if (!stalled)
            return exchange_room_refuse(server, pool, of_client, err);
        assert(stalled != exchange);
        exchange_room_close(stalled, pool);
    }
}
