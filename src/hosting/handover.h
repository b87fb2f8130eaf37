/* How the KV caches of one placement go to the next: two step machines, one for a part that gives
 * (hosting_give.c) and one for a part that takes over (hosting_take.c). A part is what a node has
 * of a placement. Nothing here knows a clock, a socket, a thread or a device: what happens is put
 * in with its time, what is to be done comes out as effects. hosting_cache.c carries them out with
 * devices and links, the simulator (sim/cache.c) with made-up ones.
 *
 *     cache_give_begin(&part.give, now_ms, &next, true);
 *     for (;;) {
 *         struct handover_effect effect;
 *         while (cache_give_next(&part.give, now_ms, &effect)) {
 *             carry it out;
 *             handover_effect_clear(&effect);
 *         }
 *         wait for a message, a job that ended, the timer
 *     }
 *
 * What passes between parts is in pipeline/cache_wire.h. In short: the old driver stops at a
 * token's boundary and offers what its slots hold; each giver reads the rows of its layers and
 * sends them to whoever has the layer next, CACHE_WINDOW unanswered at most; each taker writes what
 * it gets, and says DONE when it has all rows of its layers. When all parts have said so, the new
 * driver begins with these slots. A recurrent layer's state goes as rows, too (engine/stage.h). It
 * says how many tokens it is of, and SETTLE fails where those are not the slot's.
 *
 * Invariants
 *  1. A partial transfer is discarded: a driver begins with the slots of an offer only if every
 *     stage has every row of them, else with empty ones. Both are said once (HANDOVER_BEGIN).
 *  2. Rows of a layer and slot are taken in order and once, from who had the layer.
 *  3. A giver sends a row once, and to who has the layer next. Of windowed layers both leave out
 *     the rows that nothing sees any more (handover_span()).
 *  4. Whatever is lost, both ends come to an end: each waits no longer than its timer.
 *
 * Messages come from other nodes: what does not fit the placements is refused, never asserted.
 * Effects are the caller's once taken. Memory that lacks ends a hand-over, never anything else.
 * Not thread-safe; `offer` may be read by jobs of the part until the machine is cleared. */
#pragma once

#include "base/buffer.h"
#include "pipeline/cache_wire.h"
#include "pipeline/driver.h"
#include "trust/identity.h"

enum { GIVE_PATIENCE_MS = 2000 /* for an answer to rows */ };

struct handover_stage {
    uint8_t node_id[NODE_ID_BYTES];
    uint32_t first_layer, n_layers;
};

struct handover_placement {
    uint64_t epoch;
    uint32_t n_slots;  /* of its driver, as the giver knows; 0: no fewer than the giver's */
    uint32_t n_stages; /* the first has the driver */
    struct handover_stage stages[LIMIT_STAGES];
};

/* Faults that the simulator plants, to see that it finds them. The node never sets one. */
enum handover_bug {
    HANDOVER_SOUND,
    HANDOVER_HALF,     /* a taker believes that it has all when it has half of the rows */
    HANDOVER_NO_LAYER, /* a taker forgets the last layer of each of its stages */
};

/* The part, as its owner describes it. The flags are kept true by the owner. */
struct handover_part {
    uint64_t instance;              /* as on the wire */
    uint8_t node_id[NODE_ID_BYTES]; /* this node's */
    struct handover_placement of;
    uint64_t row_bytes[LIMIT_STAGES]; /* of a cell of the stages that are here, once loaded */
    uint32_t n_slots, context, n_vocab;
    uint32_t window; /* of windowed layers; 0: there are none */
    bool is_windowed[LIMIT_LAYERS];
    bool is_recurrent[LIMIT_LAYERS]; /* it keeps a state, handed over as `state_rows` rows */
    bool is_bare[LIMIT_LAYERS];      /* it keeps nothing, and hands nothing over */
    uint32_t sees[LIMIT_LAYERS];     /* 1 + the layer whose keys and values it sees; 0: its own */
    uint32_t state_rows;             /* 0: not known yet */
    bool is_loaded;                  /* and serves, or could */
    bool is_current;                 /* the state says that this placement serves */
    bool is_lost;                    /* its driver cannot reach all of its stages now */
    enum handover_bug bug;
};
bool handover_is_here(const struct handover_part *part, uint32_t stage);
bool handover_drives(const struct handover_part *part); /* stage 0 is here */
/* Which rows of a slot a layer of the model hands over to the placement `to`: of windowed layers
 * those that what comes next may see; of a recurrent one its state's, whatever the slot's length;
 * of layers of one stage that see the same, the first one's alone. */
struct handover_span {
    uint32_t first, end;
};
static inline uint32_t handover_span_rows(struct handover_span span)
{
    return span.end - span.first;
}
struct handover_span handover_span(const struct handover_part *part,
                                   const struct handover_placement *to, uint32_t layer,
                                   uint32_t n_tokens);

/* A copy of what an old driver offered. */
struct offered {
    uint64_t to_epoch;
    uint32_t patience_ms, n_slots;
    struct cached_slot slots[LIMIT_SEQUENCES];
    int32_t tokens[]; /* theirs */
};
struct offered *offered_new(const struct cache_message *message); /* of an OFFER. NULL: no memory */

enum handover_effect_type {
    HANDOVER_SEND = 1, /* `message` to `node_id`, which may be this node; may be lost */
    HANDOVER_QUIESCE,  /* the driver is to stop at a token's boundary; then cache_give_quiesced() */
    HANDOVER_READ,     /* cells `run` of `stage`, appended to `message`; then cache_give_read() */
    HANDOVER_WRITE,    /* the rows in `message` (from CACHE_ROWS_BYTES on) to cells `run` of
                          `stage`; then cache_take_written() with this node_id */
    HANDOVER_SETTLE,   /* the slots of `stage` hold the offer's tokens; then cache_take_settled() */
    HANDOVER_BEGIN,    /* the driver begins: `is_full`, with the slots of the offer, else with empty
                          ones; then cache_take_begun() */
    HANDOVER_RETIRE,   /* all is given, or nothing will be: the part may be unloaded */
    HANDOVER_CHANGED,  /* nothing more is taken over: the driver may be shown */
    HANDOVER_NOTE,     /* `text`, for people */
};

struct handover_effect {
    struct handover_effect *next;
    enum handover_effect_type type;
    uint8_t node_id[NODE_ID_BYTES];
    uint32_t stage;
    struct kv_run run;
    bool is_full;
    struct buffer message;
    char text[120];
};
void handover_effect_clear(struct handover_effect *effect);

/* Effects that wait to be taken. */
struct handover_effects {
    struct handover_effect *first;
};
/* False: no memory; the message is freed. */
bool handover_send(struct handover_effects *effects, const uint8_t node_id[NODE_ID_BYTES],
                   struct buffer *message);
void handover_note(struct handover_effects *effects, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool handover_put(struct handover_effects *effects, struct handover_effect *effect); /* moved */
bool handover_take(struct handover_effects *effects, struct handover_effect *out);
void handover_effects_clear(struct handover_effects *effects);

/* ---- hosting_give.c --------------------------------------------------------------------- */

/* HANDING: another placement serves, and takes over what is in this part's caches. */
enum give_state { GIVE_NOTHING, GIVE_HANDING, GIVE_OVER };

struct cache_give {
    const struct handover_part *part;
    enum give_state state;
    uint64_t until_ms;              /* it waits for something so long */
    struct handover_placement next; /* epoch 0: not known yet */
    bool has_next;                  /* … and it can be given to */
    struct offered *offer;
    uint32_t stage, layer, slot, row; /* what is to be sent next */
    uint32_t n_under_way;             /* ROWS that were not answered */
    bool quiesces, retires;           /* to be said */
    struct handover_effects effects;
};

/* What copying and computing cost, to choose between them. */
struct give_costs {
    uint64_t prompt_row_ns; /* of a prompt's token, measured; 0: not known */
    /* What the link from here to that node carries; 0: not known. NULL: of none. */
    uint64_t (*link_bytes_per_s)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    void *self;
};

void cache_give_init(struct cache_give *give, const struct handover_part *part); /* kept */
void cache_give_clear(struct cache_give *give);

/* Which placement may follow: an offer may be here before the news that it serves. */
void cache_give_prepare(struct cache_give *give, const struct handover_placement *next);
/* That placement serves now. `may`: this part served before it, and can give. False: it has nothing
 * to give (any more); retire it. To be asked again as long as it is true. */
bool cache_give_begin(struct cache_give *give, uint64_t now_ms,
                      const struct handover_placement *next, bool may);
bool cache_give_wants_slots(const struct cache_give *give); /* once the driver is quiescent */
void cache_give_quiesced(struct cache_give *give, uint64_t now_ms, const struct cached_slot *slots,
                         uint32_t n, const struct give_costs *costs);
void cache_give_offer(struct cache_give *give, uint64_t now_ms, struct offered *offer); /* takes it
                                                                                         */
/* A READ has ended; takes its message. `why` NULL: it went well. */
void cache_give_read(struct cache_give *give, struct handover_effect *effect, const char *why);
void cache_give_taken(struct cache_give *give, uint64_t now_ms);
void cache_give_stop(struct cache_give *give); /* somebody wants it no more */
void cache_give_fail(struct cache_give *give, const char *why);
void cache_give_close(struct cache_give *give); /* the part goes; nobody is told */
void cache_give_tick(struct cache_give *give, uint64_t now_ms);
bool cache_give_is_to(const struct cache_give *give, const uint8_t node_id[NODE_ID_BYTES]);
bool cache_give_is_active(const struct cache_give *give);
bool cache_give_next(struct cache_give *give, struct handover_effect *out);

/* ---- hosting_take.c --------------------------------------------------------------------- */

/* OPEN: what the part takes over was not said yet. FULL: all of its own is there. OVER: it takes
 * nothing any more. */
enum take_state { TAKE_NOTHING, TAKE_OPEN, TAKE_OFFERED, TAKE_FULL, TAKE_OVER };
enum take_begin { TAKE_BEGIN_NOT, TAKE_BEGIN_EMPTY, TAKE_BEGIN_FULL };

struct cache_take {
    const struct handover_part *part;
    enum take_state state;
    struct handover_placement from;
    uint64_t until_ms; /* a driver waits so long; 0: it does not yet */
    struct offered *offer;
    uint32_t *got; /* the row after those that came, by own layer and offered slot; 0: none did */
    uint64_t n_left;
    bool settles;          /* all rows are written: … */
    uint32_t settle_stage; /* … the next stage to be settled */
    uint32_t n_settling;
    struct cache_early *early; /* rows that were here before the offer */
    uint32_t n_early;
    bool done[LIMIT_STAGES]; /* the driver's: by stage */
    enum take_begin begins;  /* to be said, or said and not answered */
    bool is_begin_said, is_changed;
    struct handover_effects effects;
};

void cache_take_init(struct cache_take *take, const struct handover_part *part); /* kept */
void cache_take_clear(struct cache_take *take);

/* From that placement, which serves now. */
void cache_take_open(struct cache_take *take, const struct handover_placement *from);
bool cache_take_is_open(const struct cache_take *take); /* its driver is not to be shown */
bool cache_take_is_from(const struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES]);
bool cache_take_is_from_driver(const struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES]);
void cache_take_offer(struct cache_take *take, uint64_t now_ms, struct offered *offer); /* takes it
                                                                                         */
/* False: it takes nothing any more. Else the bytes are moved out of `message`, whose contents
 * `rows` are. */
bool cache_take_rows(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES],
                     const struct cache_message *rows, struct buffer *message);
void cache_take_done(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES], bool has_all);
void cache_take_written(struct cache_take *take, const struct handover_effect *effect,
                        const char *why);
void cache_take_settled(struct cache_take *take, const char *why);
void cache_take_begun(struct cache_take *take, bool ok);        /* false: no memory */
void cache_take_fail(struct cache_take *take, const char *why); /* the others are told, too */
void cache_take_end(struct cache_take *take, const char *why);  /* without what is not here */
/* A message of its pipeline came: its driver has begun. To be said of each before a device gets it;
 * WRITE and SETTLE of before must reach the device before it, too. */
void cache_take_used(struct cache_take *take);
/* By and by: is it over? `is_linked`: to who has the old driver. */
void cache_take_tick(struct cache_take *take, uint64_t now_ms, bool is_linked);
bool cache_take_next(struct cache_take *take, struct handover_effect *out);

/* ---- handover.c: messages between parts ------------------------------------------------- */

/* What came from that node, `message`, which `bytes` hold; they may be moved away. `from` and `to`
 * are the parts here of the placements of its route, NULL where there is none. Whoever has no part
 * in it is not heard. False: its rows are not wanted: answer handover_refusal(). */
bool handover_receive(struct cache_give *from, struct cache_take *to, uint64_t now_ms,
                      const uint8_t own_id[NODE_ID_BYTES], const uint8_t node_id[NODE_ID_BYTES],
                      const struct cache_message *message, struct buffer *bytes);
void handover_refusal(const struct cache_route *route, struct buffer *out);
