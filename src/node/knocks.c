#include "node/knocks.h"

#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "join/book.h"
#include "join/join.h"
#include "join/joining.h"
#include "mesh/host_port.h"
#include "node/daemon_state.h"
#include "node/finder.h"
#include "trust/identity_files.h"

#include <stdio.h>
#include <string.h>

enum { KNOCKS_MAX = 8, KNOCK_AGAIN_MS = 3000, SEARCH_MS = 15000 };

struct knock { /* one attempt at one member */
    struct knocks *knocks;
    struct joining *joining; /* NULL: free */
    char host[256];
    uint16_t port;
    char peer_name[JOIN_NAME_TEXT];
    char id[NODE_ID_TEXT];       /* of a member that discovery has found; else "" */
    char words[JOIN_WORDS_TEXT]; /* by hand: those to compare; "" not yet */
    bool closing;
};

struct knocks {
    struct daemon *daemon;
    struct knock list[KNOCKS_MAX];
    struct join_pace pace;
    struct knock_events events;      /* who asked for it, if anybody */
    char code[JOIN_CODE_DIGITS + 1]; /* the last one that was given */
    bool by_code, is_asked;
    char host[256]; /* there alone; "" wherever there is somebody */
    uint16_t port;
    uint64_t again_ms, asked_ms;
    char through[JOIN_NAME_TEXT];
    bool joined;
    void (*closed)(struct daemon *daemon); /* NULL: it is not closing */
    char plain[KNOCKS_MAX][NODE_ID_TEXT];  /* members that let nobody in */
    uint32_t n_plain;
    struct error wrong; /* what a member has said against the code; code ERROR_NONE: nothing */
};

static bool is_busy(const struct knocks *knocks)
{
    for (int i = 0; i < KNOCKS_MAX; i++) {
        if (knocks->list[i].joining)
            return true;
    }
    return false;
}

/* A code is tried once, for the member counts the attempts: then this node waits for a hand again,
 * where it did before.
 */
static void drop_code(struct knocks *knocks)
{
    const struct daemon_options *options = &knocks->daemon->options;
    knocks->by_code = false;
    if (!options->n_peers ||
        host_port_parse(options->peers[0], DAEMON_PORT, knocks->host, &knocks->port, NULL))
        knocks->host[0] = 0;
}

static void tell_end(struct knocks *knocks, const struct error *why)
{
    struct knock_events events = knocks->events;
    knocks->events = (struct knock_events){0};
    knocks->is_asked = false;
    if (why)
        drop_code(knocks);
    if (events.ended)
        events.ended(events.self, knocks->through, why);
}

/* ---- an attempt's events --------------------------------------------------------------------- */

static void show_words(struct knock *knock)
{
    struct knocks *knocks = knock->knocks;
    if (knocks->events.compare)
        knocks->events.compare(knocks->events.self, knock->words, knock->peer_name);
}

static void on_compare(void *self, const char *words, const char *peer_name)
{
    struct knock *knock = self;
    snprintf(knock->words, sizeof knock->words, "%s", words);
    snprintf(knock->peer_name, sizeof knock->peer_name, "%s", peer_name);
    if (knock->knocks->events.compare)
        show_words(knock);
    else
        daemon_say(knock->knocks->daemon,
                   "waiting to be let in by %s. On %s: `medley admit %s`, here: `medley join`.\n"
                   "Both show four words; here they are: %s",
                   peer_name, peer_name, knock->knocks->daemon->name, words);
}

static bool knocks_on_joined(void *self, struct membership *membership, struct buffer *payload)
{
    struct knock *knock = self;
    struct daemon *daemon = knock->knocks->daemon;
    char path[PATH_MAX];
    struct error err;
    enum error_code code = ERROR_NONE;
    if (knock->knocks->joined)
        code = error_set(&err, ERROR_BUSY, "another member let it in at the same time");
    if (!code)
        code = book_take(daemon->book, payload->data ? payload->data : "", payload->size, &err);
    if (!code)
        code = durable_path(daemon->folder, "identity", "", path, &err);
    if (!code)
        code = membership_store(path, membership, &err);
    buffer_deinit(payload);
    if (code) {
        log_line(LOG_ERROR, "node", "this node was let in, but cannot store its membership: %s",
                 err.text);
        membership_deinit(membership);
        return false;
    }
    membership_deinit(&daemon->membership);
    daemon->membership = *membership;
    knock->knocks->joined = true;
    snprintf(knock->knocks->through, sizeof knock->knocks->through, "%s",
             knock->peer_name[0] ? knock->peer_name : knock->host);
    return true;
}

static void end_knocks(struct knocks *knocks)
{
    struct daemon *daemon = knocks->daemon;
    void (*closed)(struct daemon *daemon) = knocks->closed;
    if (!closed || is_busy(knocks))
        return;
    daemon->knocks = NULL;
    mem_free(knocks);
    closed(daemon);
}

static void knocks_on_closed(void *arg)
{
    struct knock *knock = arg;
    struct knocks *knocks = knock->knocks;
    *knock = (struct knock){.knocks = knocks};
    if (knocks->is_asked && !knocks->closed)
        knocks_step(knocks);
    end_knocks(knocks);
}

static void close_knock(struct knock *knock)
{
    if (!knock->joining || knock->closing)
        return;
    knock->closing = true;
    joining_close(knock->joining, knocks_on_closed, knock);
}

static void close_others(struct knocks *knocks, const struct knock *but)
{
    for (int i = 0; i < KNOCKS_MAX; i++) {
        if (&knocks->list[i] != but)
            close_knock(&knocks->list[i]);
    }
}

static void become_member(struct knocks *knocks)
{
    struct daemon *daemon = knocks->daemon;
    struct error err;
    if (daemon->is_member)
        return;
    if (daemon_begin_membership(
            daemon, &err)) { /* it is a member on the disk: the next start goes on from there */
        tell_end(knocks, &err);
        daemon_over(daemon, &err);
        return;
    }
    daemon_say(daemon, "joined the cluster through %s", knocks->through);
    tell_end(knocks, NULL);
}

static bool others_try(const struct knocks *knocks, const struct knock *but)
{
    for (int i = 0; i < KNOCKS_MAX; i++) {
        if (&knocks->list[i] != but && knocks->list[i].joining && !knocks->list[i].closing)
            return true;
    }
    return false;
}

static void set_again(struct knocks *knocks, const struct knock *knock)
{
    const uint64_t wait_ms = joining_again_ms(knock->joining);
    knocks->again_ms =
        daemon_now_ms(knocks->daemon) +
        (wait_ms > KNOCK_AGAIN_MS && wait_ms != UINT64_MAX ? wait_ms : KNOCK_AGAIN_MS);
}

/* Nobody of those that were found has let this node in. That the code is wrong tells more than what
 * others said. */
static void end_round(struct knocks *knocks, struct error why)
{
    knocks->wrong = (struct error){0};
    if (knocks->is_asked) {
        tell_end(knocks, &why);
    } else if (knocks->by_code &&
               (why.code == ERROR_INVALID ||
                knocks->pace.n_shown >= LIMIT_JOIN_GUESSES)) { /* of the command line */
        daemon_say(knocks->daemon, "--join: %s. Waiting for another code, or to be let in by hand",
                   why.text);
        drop_code(knocks);
    }
}

/* By hand, a member that is busy with somebody else is knocked at again by itself. */
static bool is_worth_waiting(const struct knocks *knocks, const struct error *why)
{
    return !knocks->by_code && why->code == ERROR_BUSY &&
           daemon_now_ms(knocks->daemon) - knocks->asked_ms < SEARCH_MS;
}

static void knocks_on_ended(void *self, const struct error *why)
{
    struct knock *knock = self;
    struct knocks *knocks = knock->knocks;
    const struct error reason = *why; /* the attempt's, which is closed */
    knock->words[0] = 0;
    set_again(knocks, knock);
    close_knock(knock);
    if (knocks->joined) {
        close_others(knocks, knock);
        become_member(knocks);
        return;
    }
    log_line(LOG_INFO, "node", "%s: %s", knock->host, reason.text);
    if (reason.code == ERROR_UNSUPPORTED && knock->id[0])
        memcpy(knocks->plain[knocks->n_plain++ % KNOCKS_MAX], knock->id, sizeof knock->id);
    if (knocks->by_code && reason.code == ERROR_INVALID)
        knocks->wrong = reason;
    if (!others_try(knocks, knock) && !is_worth_waiting(knocks, &reason))
        end_round(knocks, knocks->wrong.code ? knocks->wrong : reason);
}

/* ---- knocking -------------------------------------------------------------------------------- */

static struct knock *at_host(struct knocks *knocks, const char *host, uint16_t port)
{
    for (int i = 0; i < KNOCKS_MAX; i++) {
        if (knocks->list[i].joining && knocks->list[i].port == port &&
            strcmp(knocks->list[i].host, host) == 0)
            return &knocks->list[i];
    }
    return NULL;
}

static struct knock *free_knock(struct knocks *knocks)
{
    for (int i = 0; i < KNOCKS_MAX; i++) {
        if (!knocks->list[i].joining)
            return &knocks->list[i];
    }
    return NULL;
}

static void knock_at(struct knocks *knocks, const char *host, uint16_t port, const char *name,
                     const char *id)
{
    struct knock *knock = at_host(knocks, host, port) ? NULL : free_knock(knocks);
    if (!knock)
        return;
    *knock = (struct knock){.knocks = knocks, .port = port};
    snprintf(knock->host, sizeof knock->host, "%s", host);
    snprintf(knock->peer_name, sizeof knock->peer_name, "%s", name);
    snprintf(knock->id, sizeof knock->id, "%s", id);
    const struct joining_options options = {
        .loop = knocks->daemon->loop,
        .identity = &knocks->daemon->identity,
        .name = knocks->daemon->name,
        .host = knock->host,
        .port = port,
        .mode = knocks->by_code ? JOIN_BY_CODE : JOIN_BY_HAND,
        .code = knocks->by_code ? knocks->code : NULL,
        .pace = &knocks->pace,
        .events = {.compare = on_compare,
                   .joined = knocks_on_joined,
                   .ended = knocks_on_ended,
                   .self = knock},
    };
    struct error err;
    if (joining_open(&options, &knock->joining, &err)) {
        *knock = (struct knock){.knocks = knocks};
        knocks->again_ms = daemon_now_ms(knocks->daemon) + KNOCK_AGAIN_MS;
        log_line(LOG_INFO, "node", "%s: %s", host, err.text);
        if (knocks->is_asked && !is_busy(knocks))
            tell_end(knocks, &err);
    }
}

static bool knocks_know_plain(const struct knocks *knocks, const char *id)
{
    for (uint32_t i = 0; i < knocks->n_plain && i < KNOCKS_MAX; i++) {
        if (strcmp(knocks->plain[i], id) == 0)
            return true;
    }
    return false;
}

/* Each found member once, whatever addresses it has; by hand one admin of a cluster is enough.
 * Which of them are admins shows when they are asked; when all have been, from the beginning. */
static void knock_at_found(struct knocks *knocks)
{
    const struct discovered_node *done[KNOCKS_MAX];
    int n = 0;
    for (const struct discovered_node *found = finder_found(knocks->daemon->finder);
         found && n < KNOCKS_MAX; found = found->next) {
        bool seen = !found->record.cluster[0] ||
                    (!knocks->by_code && knocks_know_plain(knocks, found->record.id));
        for (int i = 0; i < n && !seen; i++)
            seen =
                strcmp(done[i]->record.id, found->record.id) == 0 ||
                (!knocks->by_code && strcmp(done[i]->record.cluster, found->record.cluster) == 0);
        if (seen)
            continue;
        done[n++] = found;
        knock_at(knocks, found->host, found->port, found->record.name, found->record.id);
    }
    if (!n)
        knocks->n_plain = 0;
}

void knocks_step(struct knocks *knocks)
{
    struct daemon *daemon = knocks ? knocks->daemon : NULL;
    if (!knocks || daemon->is_member || daemon->stopping || knocks->joined || is_busy(knocks) ||
        daemon_now_ms(daemon) < knocks->again_ms)
        return;
    if (knocks->host[0])
        knock_at(knocks, knocks->host, knocks->port, "", "");
    else
        knock_at_found(knocks);
    if (knocks->is_asked && !is_busy(knocks) &&
        daemon_now_ms(daemon) - knocks->asked_ms > SEARCH_MS) {
        struct error why;
        error_set(&why, ERROR_NOT_FOUND,
                  "found no cluster on this network; name a member: `medley join CODE HOST`");
        tell_end(knocks, &why);
    }
}

static enum error_code knocks_open(struct daemon *daemon, struct error *err)
{
    if (!daemon->knocks && !(daemon->knocks = mem_new(sizeof *daemon->knocks)))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to join");
    daemon->knocks->daemon = daemon;
    for (int i = 0; i < KNOCKS_MAX; i++)
        daemon->knocks->list[i].knocks = daemon->knocks;
    return ERROR_NONE;
}

struct join_target { /* to join, understood */
    char digits[JOIN_CODE_DIGITS + 1];
    char host[HOST_TEXT];
    uint16_t port;
};

static enum error_code knocks_understand(const char *code, const char *host,
                                         struct join_target *target, struct error *err)
{
    enum error_code status = ERROR_NONE;
    *target = (struct join_target){0};
    if (host)
        status = host_port_parse(host, DAEMON_PORT, target->host, &target->port, err);
    if (!status && code)
        status = join_code_parse(code, target->digits, err);
    return status;
}

static void knocks_take_target(struct knocks *knocks, const struct join_target *target,
                               bool by_code)
{
    memcpy(knocks->host, target->host, sizeof knocks->host);
    knocks->port = target->port;
    knocks->by_code = by_code;
    if (by_code && memcmp(knocks->code, target->digits, sizeof knocks->code) != 0)
        knocks->pace.n_shown = 0;
    if (by_code)
        memcpy(knocks->code, target->digits, sizeof knocks->code);
}

/* By hand, and words are there already: at the host that is asked for, if one is. */
static struct knock *with_words(struct knocks *knocks)
{
    for (int i = 0; i < KNOCKS_MAX; i++) {
        struct knock *knock = &knocks->list[i];
        bool is_there = !knocks->host[0] ||
                        (knock->port == knocks->port && strcmp(knock->host, knocks->host) == 0);
        if (knock->joining && !knock->closing && knock->words[0] && is_there)
            return knock;
    }
    return NULL;
}

enum error_code knocks_join(struct daemon *daemon, const char *code, const char *host,
                            const struct knock_events *events, struct error *err)
{
    if (daemon->is_member)
        return error_set(
            err, ERROR_INVALID,
            "this machine is already in a cluster; run `medley leave` first, then join the other");
    struct join_target target;
    enum error_code status = knocks_understand(code, host, &target, err);
    if (!status)
        status = knocks_open(daemon, err);
    struct knocks *knocks = daemon->knocks;
    if (!status && (knocks->is_asked || knocks->joined))
        status = error_set(err, ERROR_BUSY, "another `medley join` is already running here");
    if (status)
        return status;
    knocks_take_target(knocks, &target, code);
    if (events)
        knocks->events = *events, knocks->is_asked = true, knocks->asked_ms = daemon_now_ms(daemon);
    struct knock *waiting = code ? NULL : with_words(knocks);
    if (waiting) {
        show_words(waiting);
        return ERROR_NONE;
    }
    if (code || host)
        close_others(knocks, NULL); /* what waits for a hand */
    knocks->wrong = (struct error){0};
    knocks->again_ms = 0;
    knocks_step(knocks);
    return ERROR_NONE;
}

void knocks_answer(struct knocks *knocks, bool agree)
{
    for (int i = 0; knocks && i < KNOCKS_MAX; i++) {
        struct knock *knock = &knocks->list[i];
        if (!knock->joining || !knock->words[0])
            continue;
        if (agree) {
            joining_agree(knock->joining);
        } else {
            struct error why;
            error_set(&why, ERROR_CANCELLED, "the words were not the same: not joined");
            close_knock(knock);
            tell_end(knocks, &why);
        }
        return;
    }
}

void knocks_forget(struct knocks *knocks)
{
    if (!knocks)
        return;
    knocks->events = (struct knock_events){0};
    knocks->is_asked = false;
    drop_code(knocks); /* what is under way goes on */
}

void knocks_close(struct knocks *knocks, void (*closed)(struct daemon *daemon))
{
    knocks->closed = closed;
    close_others(knocks, NULL);
    end_knocks(knocks);
}
