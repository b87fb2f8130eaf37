/* A member's end of joining (join/join.h): machines that are not members knock, and are let in by
 * code or by hand.
 *
 *     mesh_options.joiner -> admission_stream(a, stream)      each is a guest, with an inviter
 *                                                             machine of its own
 *     by code:  admission_invite() makes a code; who proves that he knows it goes on to `decide`
 *     by hand:  admission_list() shows who waits, with his words; admission_agree(), or
 *               admission_refuse(). When the person at the other end has said yes, too, it goes on
 *               to `decide`
 *     decide -> the cluster takes the node in (or not): admission_grant(), or admission_refuse(),
 *     within
 *               LIMIT_JOIN_DECIDE_MS; else it is refused
 *     ended  -> it is over: the newcomer has kept what it got, or why not
 *
 * Limits: LIMIT_JOIN_CHANNELS guests at once, LIMIT_JOIN_CHANNELS_OF_HOST from one address (an IPv6
 * host has a /64); whoever comes on top of that is closed at once. Each step has its deadline,
 * LIMIT_JOIN_WAIT_MS where a person is asked. A guest that drips, floods, garbles or goes away
 * loses its own channel; no other notices. A node that comes by hand a second time takes its own
 * earlier place.
 *
 * A guest that was granted and did not say that it knows (`ended` with an error after
 * admission_grant()) may be a member or not: it is on the cluster's list, and is let in as well
 * when it knocks again: then `decide` comes for a node that is a member already, and is granted.
 *
 * Secrets: the code that is open lies in memory, to be shown again, and is wiped when it is used up
 * or void. Nothing secret is logged.
 *
 * All on the loop's thread. Events are raised from the loop, never from within a call. */
#pragma once

#include "join/join.h"
#include "join/join_channel.h"

struct admission;

struct admission_events {
    /* It is who it says, and was let in by code or by hand. May be of a node that is a member
     * already. */
    void (*decide)(void *self, uint64_t id, const uint8_t node_id[NODE_ID_BYTES], const char *name);
    void (*changed)(void *self); /* admission_list() answers otherwise now */
    /* code ERROR_NONE: it is a member and knows it. Raised once for each guest that has said its
     * name. NULL: not wanted. */
    void (*ended)(void *self, uint64_t id, const uint8_t node_id[NODE_ID_BYTES], const char *name,
                  const struct error *why);
    void *self;
};

struct admission_options {
    uv_loop_t *loop;
    /* The caller's until admission_close() is done: */
    const struct identity *identity;
    const struct authority *authority;
    const char *name;
    struct admission_events events;
    struct join_clock clock; /* zeroed: the machine's */
};

enum error_code admission_open(const struct admission_options *options, struct admission **out,
                               struct error *err);

/* Closes the guests' channels; no event is raised any more; `closed` is called from the loop when
 * nothing is left. */
void admission_close(struct admission *admission, void (*closed)(void *arg), void *arg);

/* Takes a stream after its handshake, as mesh_options.joiner gives it. It may come from any
 * transport. */
void admission_stream(struct admission *admission, struct stream *stream);

/* A code that is good once, for so long (0: LIMIT_JOIN_CODE_MS); the last one is void. */
enum error_code admission_invite(struct admission *admission, uint32_t minutes,
                                 char code[JOIN_CODE_TEXT], struct error *err);

/* The code that is open now, and for how long still; false: none is (used, expired, void, or never
 * made). */
bool admission_invited(struct admission *admission, char code[JOIN_CODE_TEXT], uint64_t *left_ms);

/* Who waits to be let in by hand. */
struct admission_waiting {
    uint64_t id;
    uint8_t node_id[NODE_ID_BYTES];
    char name[JOIN_NAME_TEXT];
    char words[JOIN_WORDS_TEXT]; /* to be compared with those on its screen */
    uint64_t since_ms;           /* of options.clock */
    bool agreed; /* admission_agree() was called: the person at the other end is waited for */
};

/* Writes the first n of them; returns how many there are. */
uint32_t admission_list(const struct admission *admission, struct admission_waiting *out,
                        uint32_t n);

/* A person has seen the same words on both machines. ERROR_NOT_FOUND: it does not wait (any
 * more). */
enum error_code admission_agree(struct admission *admission, uint64_t id, struct error *err);

/* Of one that waits, or is to be decided. `why` is shown at the other end: printable ASCII, at most
 * 200 characters. */
enum error_code admission_refuse(struct admission *admission, uint64_t id, const char *why,
                                 struct error *err);

/* In `decide`: it came with the code that is out, or was until then; else by hand. */
bool admission_is_by_code(const struct admission *admission, uint64_t id);

/* After `decide`. The node must be on the cluster's list by now, or it may be turned away by the
 * first member that it dials. `with_key`: it is an admin, and gets the authority's key.
 * ERROR_NOT_FOUND: it has gone in the meantime. */
enum error_code admission_grant(struct admission *admission, uint64_t id, bool with_key,
                                const void *payload, size_t size, struct error *err);
