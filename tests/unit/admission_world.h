/* A member that lets machines in and newcomers that want to be, over loopback on link_world's loop:
 * for tests of admission and joining. */
#pragma once

#include "base/limits.h"
#include "join/admission.h"
#include "join/joining.h"
#include "link_world.h"

#include <openssl/types.h>

enum { TOWN_MEMBER = 1, TOWN_NEWCOMERS = 3 };

/* What the member's owner does when it is asked to decide. */
enum town_decision { DECIDE_GRANT, DECIDE_REFUSE, DECIDE_NEVER, DECIDE_TOO_MUCH };

struct town;

struct newcomer {
    struct town *town;
    struct identity identity;
    struct join_pace pace;
    struct joining *joining;
    bool declines_to_keep, closes_on_joined, closes_on_compare;
    bool member_stops; /* within `joined` */
    /* what its events said */
    char words[JOIN_WORDS_TEXT], peer_name[JOIN_NAME_TEXT];
    uint32_t n_compare, n_joined, n_ended;
    struct error why;
    struct membership membership;
    struct buffer payload;
    bool is_closed;
};

struct town {
    struct link_world *links;
    struct admission *admission;
    struct join_clock clock;
    uint64_t ahead_ms; /* of the real clock */
    enum town_decision decision;
    bool holds; /* streams are not given to admission: the last is `held` */
    struct stream *held;
    uint32_t n_streams, n_changed, n_decide, n_ended;
    uint64_t decide_id;
    struct error why; /* of the last that ended */
    bool is_closed;
    struct newcomer newcomers[TOWN_NEWCOMERS];
};

struct town *town_init(void);
/* Links over this transport; the machine's own clock, which town_skip() does not move. */
struct town *town_init_over(enum mesh_transport transport);
void town_deinit(struct town *town); /* closes what is open */
void town_close_member(struct town *town);

/* Begins an attempt; the one before is closed. host NULL: 127.0.0.1. code NULL: by hand. */
struct newcomer *town_join(struct town *town, int index, const char *host, const char *code);
void newcomer_close(struct newcomer *newcomer);
bool newcomer_ended(void *newcomer);
bool newcomer_compares(void *newcomer);

bool town_run(struct town *town, bool (*holds)(void *arg), void *arg); /* at most 7 s */
void town_skip(struct town *town, uint64_t ms); /* the clock jumps; the loop has time to see it */
char *town_invite(struct town *town);           /* a code; good until the next call */
bool town_is_told(void *town);                  /* the member, that an attempt has ended */
uint32_t town_waiting(struct town *town, struct admission_waiting *first);

/* Until its attempt has ended, with this error; or as a member, and the other end knows. */
void newcomer_expect_failure(struct newcomer *newcomer, enum error_code code, const char *words);
void newcomer_expect_joined(struct newcomer *newcomer);

/* It is a member: all of it belongs together, and a link to the member comes up with it. */
void newcomer_check_member(struct newcomer *newcomer);

/* One that shakes hands as a stranger does, and then does what it likes. From 127.0.0.`host`; its
 * socket does not block. */
struct stranger {
    struct town *town;
    int fd;
    SSL *ssl;
    bool shook;
};

void stranger_connect(struct stranger *stranger, struct town *town, int host);
void stranger_say(struct stranger *stranger, const void *bytes, size_t size);
bool stranger_is_cut(void *stranger);
void stranger_close(struct stranger *stranger);
