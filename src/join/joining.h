/* A stranger's end of joining (join/join.h): one attempt at one member, over TCP. Several may run
 * at once, one for each host that was found; the first that raises `joined` wins, and its owner
 * closes the others.
 *
 *     joining_open(&options, &joining, err);
 *     by code:  ... joined, ended
 *     by hand:  ... compare: show the words; joining_agree() when a person has said yes; joined,
 *               ended
 *     joining_close(joining, closed, arg);         at any time, once; also from within an event
 *
 * The host's addresses are tried in turn, each for LIMIT_JOIN_CONNECT_MS with the TLS handshake. By
 * hand an attempt waits for its turn where options.pace says that this machine asked somebody a
 * moment ago.
 *
 * A node that waits until somebody lets it in knocks again and again: its owner opens an attempt by
 * hand at each member that it knows of, and when one has ended, closes it and opens it anew after
 * joining_again_ms() (and a random part of a second more, so that many machines do not come
 * together). Words are shown for LIMIT_JOIN_WAIT_MS at most; each attempt has new ones. The pace
 * lives as long as the process; for another code its n_shown starts from 0.
 *
 * All on the loop's thread. Events are raised from the loop, never from within a call; after
 * joining_close() none is. The code is wiped when the attempt is over. */
#pragma once

#include "join/join.h"
#include "join/join_channel.h"

struct joining;

struct joining_events {
    /* By hand. `words` are to be the same on both screens; `peer_name` is what the other end calls
     * itself, and is worth no more than the words. Both are good until joining_close(). */
    void (*compare)(void *self, const char *words, const char *peer_name);
    /* This node is a member: keep it. Both are the callee's now, whatever it returns. True: it is
     * on disk, and will be there after a crash; then the member is told. */
    bool (*joined)(void *self, struct membership *membership, struct buffer *payload);
    /* Once. After `joined`: ERROR_NONE when the member knows it; else this node is a member all the
     * same. */
    void (*ended)(void *self, const struct error *why);
    void *self;
};

struct joining_options {
    uv_loop_t *loop;
    const struct identity
        *identity; /* the caller's until joining_close() is done, as are name and pace */
    const char *name;
    const char *host; /* a name or a numeric address; copied */
    uint16_t port;
    enum join_mode mode;
    const char *code; /* by code: as a person typed it; copied */
    struct join_pace *pace;
    struct joining_events events;
    struct join_clock clock; /* zeroed: the machine's */
};

/* ERROR_INVALID: host, port, name or code is none. */
enum error_code joining_open(const struct joining_options *options, struct joining **out,
                             struct error *err);

/* After `compare`: a person has seen the same words on both machines. Else it does nothing. */
void joining_agree(struct joining *joining);

/* The member is told when the attempt is under way still. `closed` is called from the loop when
 * nothing is left. */
void joining_close(struct joining *joining, void (*closed)(void *arg), void *arg);

/* After `ended`: how long to wait before the same is tried at this host again. UINT64_MAX: it would
 * end the same way (the code is wrong, or this node is a member). */
uint64_t joining_again_ms(const struct joining *joining);
