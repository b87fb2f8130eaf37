/* One replica on a made-up disk, spoken to by hand. */
#ifndef MEDLEY_TESTS_REPLICA_STAGE_H
#define MEDLEY_TESTS_REPLICA_STAGE_H

#include "cluster/wire.h"
#include "cluster_world.h"

enum { SELF = 7, LEADER = 8, SENT_MAX = 64 };

struct stage {
    struct replica *replica;
    struct log_saved disk;
    uint64_t now_ms, written;
    bool hold_writes;
    struct log_write writes[16];
    uint32_t n_writes;
    struct wire_message sent[SENT_MAX]; /* without their contents */
    uint64_t to[SENT_MAX];
    uint32_t n_sent, n_applied;
    uint64_t applied[64];
};

extern struct error err; /* of what was told last */

/* A replica that was never a member of anything, and its end. */
void new_stage(struct stage *s);
void drop_stage(struct stage *s);
/* It starts from what its disk has; it stops, and loses what is not written yet. */
void open_stage(struct stage *s);
void close_stage(struct stage *s);

/* Takes what the replica wants done: writes at once unless `hold_writes`. */
void look(struct stage *s);
void finish_one_write(struct stage *s);
void finish_writes(struct stage *s);

/* A message to it. hear(): which it must take. */
enum error_code tell(struct stage *s, uint64_t from, struct wire_message message);
void hear(struct stage *s, uint64_t from, struct wire_message message);
/* The last of this type that it sent; NULL: none. */
const struct wire_message *last_sent(const struct stage *s, enum wire_type type);

/* A list of members as an entry: LEADER votes, and up to two more; `votes` is one bit each.
 * `bytes`: room for 64. */
struct log_entry members_entry(uint64_t term, uint32_t votes, uint8_t *bytes);
struct log_entry event_entry(uint64_t term);
/* LEADER's entries behind `prev`. */
void append(struct stage *s, uint64_t term, uint64_t prev, uint64_t prev_term, uint64_t commit,
            struct log_entry *entries, uint32_t n);

#endif
