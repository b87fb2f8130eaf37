/* The node has hung up in the middle of an answer: it is looked for, and given what it had, with
 * what it generated. */
#include "cli/remote_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "request/request_wire.h"

#include <poll.h>
#include <string.h>

enum {
    LOOK_MS = 250,   /* between attempts */
    RETURNS_MAX = 3, /* of a node that goes again within */
    RETURNS_MS = 10000,
};

/* Requests for rows are not: what was said of them is not kept. */
static bool can_go_on(struct remote *remote)
{
    bool any = false, all = true;
    pthread_mutex_lock(&remote->lock);
    for (const struct remote_request *at = remote->requests; at; at = at->next) {
        any = true;
        all = all && !at->request.want_all_logits && !at->request.embeddings;
    }
    pthread_mutex_unlock(&remote->lock);
    return any && all;
}

static bool is_again(struct remote *remote)
{
    const uint64_t now_ns = clock_now_ns();
    if (remote->n_returns && now_ns - remote->returned_ns > RETURNS_MS * UINT64_C(1000000))
        remote->n_returns = 0;
    remote->returned_ns = now_ns;
    return remote->n_returns++ >= RETURNS_MAX;
}

/* A connection that is ready for requests for the same instance. */
static enum error_code connect_again(struct remote *remote, struct daemon_client **out,
                                     struct error *err)
{
    struct daemon_client *client = NULL;
    yyjson_doc *answer = NULL;
    struct remote_answer found;
    enum error_code code = daemon_client_open(&client, err);
    if (code)
        return code;
    daemon_client_hurry(client);
    code = remote_begin(client, remote->model, &answer, err);
    if (!code)
        code = remote_check(answer, &found, err);
    if (!code &&
        (strcmp(found.instance, remote->instance) != 0 || found.context != remote->context))
        code =
            error_set(err, ERROR_IO, "the node has placed the model differently in the meantime");
    yyjson_doc_free(answer);
    if (code)
        daemon_client_close(client);
    else
        *out = client;
    return code;
}

/* All that is listed; what comes meanwhile waits for `writing`. */
static void remote_return_hand_over(struct remote *remote, struct daemon_client *client)
{
    struct buffer run = {0};
    pthread_mutex_lock(&remote->writing);
    daemon_client_close(remote->client);
    remote->client = client;
    pthread_mutex_lock(&remote->lock);
    for (struct remote_request *at = remote->requests; at; at = at->next) {
        struct request part = at->request;
        at->first = at->usage.generated_tokens;
        part.n_prompt += at->first;
        part.n_predict = at->n_room - at->first;
        if (!at->cancelled)
            request_write_submit(at->id, remote->instance, &part, &run);
    }
    pthread_mutex_unlock(&remote->lock);
    remote_write_locked(remote, &run);
    pthread_mutex_unlock(&remote->writing);
}

static void wait_a_moment(struct remote *remote, bool *is_over)
{
    struct pollfd wake = {.fd = remote->wake, .events = POLLIN};
    if (poll(&wake, 1, LOOK_MS) > 0)
        remote_heed(remote, is_over);
}

bool remote_return(struct remote *remote, struct error *err)
{
    const struct error lost = *err;
    const uint64_t until_ns = clock_now_ns() + LIMIT_CONTROL_BACK_MS * UINT64_C(1000000);
    struct daemon_client *client = NULL;
    bool is_over = false;
    remote_end_whole(remote);
    if (!can_go_on(remote) || is_again(remote))
        return false;
    log_line(LOG_WARN, "run",
             "%s in the middle of the answer, which goes on when it is back (for %d s)", lost.text,
             LIMIT_CONTROL_BACK_MS / 1000);
    while (connect_again(remote, &client, err) && clock_now_ns() < until_ns && !is_over &&
           can_go_on(remote))
        wait_a_moment(remote, &is_over);
    if (client) {
        remote_return_hand_over(remote, client);
        return true;
    }
    error_set(err, ERROR_IO,
              "%s in the middle of the answer. Start it again with `medley up`, or ask on another "
              "machine; the same "
              "prompt and --seed give the same answer",
              lost.text);
    return false;
}
