/* The inside of a run, for src/sim alone. Files: chance.c chance and the heap of events; world.c
 * what becomes of them; faults.c; run.c the beginning and the end; net.c messages; frames.c those
 * of the product's own code; links.c how links come and end, watch.c how silence on them is found;
 * log.c a node's party, views.c states that are shared, disk.c what it writes; lead.c what a leader
 * does, records.c what it keeps true, planner.c the problems it solves; host.c stages and devices;
 * heat.c how warm those are; serve.c drivers, stage.c what computes for them, cells.c what their
 * slots contain, cache.c how that goes along with a move; client.c who asks for what; seat.c the
 * relay of a node; keys.c who is who where there are roles, hostile.c what a hostile member does,
 * forge.c what it makes up; check.c what must be so.
 *
 * An event concerns one node. When it has been handled, world_turn() carries out what the node
 * wants, and sets its timer. */
#pragma once

#include "sim/types.h"

#include <assert.h>

static inline uint64_t world_wall_ms(const struct world *w, const struct node *node)
{
    return (uint64_t)((int64_t)w->now_ms + WALL_BEGIN_MS + node->wall_ms);
}

/* ---- chance.c ---- */
uint64_t world_draw(struct world *w, uint64_t below);
bool world_chance_ppm(struct world *w, uint64_t ppm);
void world_say(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_violated(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_push(struct world *w, struct event event);
struct event world_pop(struct world *w);

/* ---- world.c ---- */
void world_turn(struct world *w, struct node *node);
/* After what the log has no part in, as steps and tokens: it is not asked unless something else has
 * changed, or is due. */
void world_turn_beside_log(struct world *w, struct node *node);
void world_step(struct world *w);
bool node_runs(const struct world *w, const struct node *node);
void world_new_member(struct world *w, struct node *node);
struct node *world_member(const struct world *w, uint64_t member); /* NULL: nobody's */
/* "n12"; with roles the first byte of a key's hash (keys.c). */
static inline uint32_t world_index(const char *id)
{
    uint32_t index = 0;
    if (*id != 'n')
        return 16 * (uint32_t)(id[0] - '0') +
               (uint32_t)(id[1] <= '9' ? id[1] - '0' : id[1] - 'a' + 10);
    for (const char *at = id + 1; *at; at++)
        index = 10 * index + (uint32_t)(*at - '0');
    return index;
}
static inline struct node *world_node(struct world *w, const char *id)
{
    assert(world_index(id) < w->n);
    return &w->nodes[world_index(id)];
}
static inline uint32_t instance_index(const char *id)
{
    return (uint32_t)(id[1] - '0');
}

/* ---- net.c ---- */
struct message *message_new(enum message_kind kind, const struct node *from, uint32_t to);
void message_free_one(struct message *message);
void net_send(struct world *w, struct message *message); /* lossy */
bool net_send_link(struct world *w,
                   struct message *message); /* false: it is down; the message is freed */
void net_deliver(struct world *w, struct event *event);
uint64_t net_link(const struct world *w, uint32_t at,
                  uint32_t to); /* 0: down; a node has one to itself */
bool net_reaches(const struct world *w, uint32_t from, uint32_t to);
bool net_is_cut(const struct world *w, uint32_t from, uint32_t to);
uint64_t net_way_ms(struct world *w); /* drawn: delay and losses of something on a link */

/* ---- frames.c ---- */
/* Copies the bytes. False: there is no link (or no memory for the message), and nothing was sent. A
 * frame to the node itself comes in its next event. */
bool frame_send(struct world *w, const struct node *node, uint32_t to, enum node_frame type,
                const void *bytes, size_t size);
void frame_receive(struct world *w, struct node *node, const struct message *message);

/* ---- links.c ---- */
struct end *net_end(const struct world *w, uint32_t at, uint32_t to);
void net_try_link(struct world *w, uint32_t a, uint32_t b);
void net_links_soon(struct world *w, uint32_t node);
void net_node_gone(struct world *w, uint32_t node, bool told);
void net_silence(struct world *w, const struct event *event);
void net_watch(struct world *w, uint32_t at,
               uint32_t to); /* looks after a while whether it is still there */
void net_cut(struct world *w, uint32_t from, uint32_t to, int by);
void net_push(struct world *w, enum event_type type, uint64_t after_ms, uint32_t at, uint32_t to,
              uint64_t b);
void net_unwatch(struct end *end);
void net_become_silent(struct world *w, uint32_t at, uint32_t to);
void net_give_up(struct world *w, uint32_t at,
                 uint32_t to); /* the end is closed; the other is told if it can be */

/* ---- watch.c ---- */
void net_heard(struct world *w, struct node *node, uint32_t from);
bool net_silent(const struct world *w, uint32_t at, uint32_t to);
bool net_misses(const struct world *w, uint32_t at,
                uint32_t to); /* silent, or gone for longer than a moment */
void net_say(const struct world *w, const struct node *node, struct said *out);
void net_watch_peers(struct world *w, struct node *node);
void net_look(struct world *w, const struct event *event);
void net_answer(struct world *w, const struct event *event);

/* ---- keys.c ---- */
enum error_code keys_make(struct node *node, struct error *err); /* and its id of it */

/* ---- hostile.c ---- */
bool hostile_init(struct world *w, struct node *node);
void hostile_deinit(struct node *node);
void hostile_act(struct world *w, struct node *node);
void hostile_overhear(struct node *node, const struct message *message); /* any node: it looks */
/* What a member can do in a cluster that hears no leader (docs/cluster-log.md) is left out. */
bool hostile_is_left_out(const struct world *w, const struct node *to, const struct message *m);

/* ---- forge.c ---- */
void forge_log_message(struct world *w, struct node *from, const struct node *to,
                       struct buffer *out);
void forge_event(struct world *w, struct node *from, struct buffer *out);
struct node *forge_honest(struct world *w); /* any of them */

/* ---- faults.c ---- */
void fault_begin(struct world *w, uint32_t index);
void fault_end(struct world *w, uint32_t index);
uint64_t fault_end_ms(const struct world *w, const struct scenario_fault *fault);
void node_start(struct world *w, struct node *node);
void node_stop(struct world *w, struct node *node, bool told, bool lost);

/* ---- heat.c ---- */
bool heat_init(struct world *w, struct node *node);
void heat_sample(struct world *w, struct node *node);
/* The device works for so long at full duty; when it has done that. */
uint64_t heat_work_ms(struct node *node, uint32_t device, uint64_t ms);
void heat_say(const struct world *w, const struct node *node, struct said *out);

/* ---- log.c ---- */
bool log_start(struct world *w, struct node *node);
void log_stop(struct world *w, struct node *node, bool lost);
void log_receive(struct world *w, struct node *node, const struct message *message);
void log_disk(struct world *w, struct node *node);
void log_turn(struct world *w, struct node *node);
uint64_t log_timer(const struct world *w, const struct node *node);
void log_propose(struct world *w, struct node *node, Cluster__Event *event, uint64_t key,
                 bool client);
void log_receive_proposal(struct world *w, struct node *node, const struct message *message);
const struct state *node_state(const struct node *node);

/* Of a party that says why it drops something: a violation. */
void log_party_says(void *node, enum log_level level, const char *text);
void log_drop_wishes(struct node *node);

/* ---- views.c ---- */
struct party_states views_of(struct world *w);

/* ---- disk.c ---- */
void disk_queue(struct world *w, struct node *node, struct log_write *write); /* takes it over */
void disk_drop_writes(struct world *w, struct node *node, uint64_t kept_writes);
bool disk_begin_party(struct world *w, struct node *node);

/* ---- lead.c ---- */
void lead_turn(struct world *w, struct node *node);
void lead_lost(struct node *node);
bool lead_open(struct world *w, struct node *node);
bool leading_init(struct world *w);

/* ---- records.c ---- */
void record_all(struct world *w, struct node *node);
void record_members(struct world *w, struct node *node); /* by admins, where there are roles */
void record_model(struct world *w, struct node *node, uint32_t instance);

/* ---- planner.c ---- */
enum error_code planner_init(struct world *w);
void planner_deinit(struct world *w);
struct master_planner planner_of(struct world *w, struct node *node);
bool planner_has_weights(void *world, const char *node, const char *model);

/* ---- host.c ---- */
void host_turn(struct world *w, struct node *node);
void host_event(struct world *w, struct node *node, const struct event *event);
void host_start(struct node *node);
/* The node gets a model's weights, from one that has them (scenario.copies). */
void host_fetch(struct world *w, struct node *node, uint32_t instance);
void host_drop_all(struct node *node);
struct sim_part *host_part(const struct node *node, uint32_t instance, uint64_t epoch);
void host_device_gone(struct world *w, struct node *node, uint32_t device, const char *why);
struct hosted *host_find(struct node *node, uint32_t instance, uint64_t epoch, uint32_t stage);
bool host_computes(const struct node *node, uint32_t device); /* it has a stage that is ready */
void host_look_later(struct world *w, const struct node *node, uint64_t key, uint64_t ms);
void host_check(struct world *w, struct node *node);

/* ---- serve.c ---- */
struct hosted *serve_driver(struct world *w, struct node *node, uint32_t instance);
void serve_receive(struct world *w, struct node *node, const struct message *message);
/* As driver_submit() and driver_cancel(), of the driver that was loaded with that key. */
enum error_code serve_submit(struct world *w, struct node *node, uint64_t key,
                             const struct request *request, uint64_t *id, struct error *err);
void serve_cancel(struct world *w, struct node *node, uint64_t id);
void serve_event(struct world *w, struct node *node, const struct event *event);
void serve_link_down(struct world *w, struct node *node, uint32_t other);
void serve_turn(struct world *w, struct node *node);
void serve_opened(struct world *w, struct node *node, struct sim_part *part);
/* All of its devices gave it up, or one of them has lost what it had. */
void serve_missed(struct world *w, struct node *node, struct sim_part *part);
void serve_leave(struct world *w, struct node *node, struct sim_part *part);
void serve_drop_all(struct node *node);

/* What came for a stage here finds none, or one that lacks what stands before it. */
void serve_stray(struct world *w, struct node *node, const struct message *m);
void serve_broken(struct world *w, struct node *node, const struct hosted *stage);

/* They go back to who asked: it begins them anew elsewhere. `why` NULL: they are cancelled. */
void serve_return_all(struct world *w, struct node *node, const struct sim_part *driver,
                      const struct error *why);

/* ---- cache.c ---- */
void kept_id(uint32_t node, uint8_t out[NODE_ID_BYTES]);
uint32_t kept_index(const uint8_t id[NODE_ID_BYTES]);
/* `from`: the placement that it takes over from, or NULL. */
void kept_init(struct world *w, struct node *node, struct sim_part *part,
               const Cluster__Placement *from);
void kept_clear(struct sim_part *part);
void kept_drop_jobs(struct node *node);
void kept_turn(struct world *w, struct node *node);
bool kept_job(struct world *w, struct node *node, uint64_t key); /* false: it is none of these */
void kept_receive(struct world *w, struct node *node, const struct message *message);
/* False: it has nothing to give (any more). */
bool kept_hand_over(struct world *w, struct node *node, struct sim_part *part,
                    const Cluster__Placement *next);
void kept_fail(struct world *w, struct node *node, struct sim_part *part, const char *why);
void kept_leave(struct sim_part *part);
bool kept_is_handing(const struct node *node, uint32_t instance, uint64_t epoch);
bool kept_waits(const struct node *node, const struct hosted *driver);
void kept_lost(struct world *w, struct node *node, struct sim_part *driver, bool ends_take);
void kept_used(struct world *w, struct node *node, const struct hosted *stage); /* by a step */
/* Where the driver puts a request, and how much of it is there. False: all slots are in use. */
bool kept_slot_for(const struct node *node, const struct hosted *driver, const uint64_t *tokens,
                   uint32_t n_tokens, uint32_t *slot, uint32_t *n_fed);

/* ---- cells.c ---- */
enum { KEPT_ROW_BYTES = 8 };
struct cached *kept_slot(struct hosted *h, uint32_t slot); /* NULL: no memory */
bool kept_append(struct cached *cached, uint64_t hash);    /* false: no memory */
void kept_forget(struct hosted *h);                        /* all that it has */
/* A device's jobs. NULL: done; else why not. */
const char *kept_read_rows(struct hosted *h, struct handover_effect *effect);
const char *kept_write_rows(struct hosted *h, const struct handover_effect *effect);
const char *kept_settle(struct hosted *h, const struct offered *offer);

/* ---- stage.c ---- */
void stage_step(struct world *w, struct node *node, const struct message *message);

/* ---- client.c ---- */
void client_begin(struct world *w, struct node *node, uint32_t stream);
void client_drop_all(struct node *node);
void client_taint(struct world *w, uint64_t request);
const struct client *client_find(const struct world *w, uint64_t request); /* NULL: it is over */
uint64_t reference_fold(uint64_t hash, uint64_t token);
uint64_t reference_token(uint64_t hash, uint64_t position);

/* ---- seat.c ---- */
bool seat_start(struct world *w, struct node *node);
void seat_stop(struct node *node); /* nobody is told */
bool seat_submit(struct world *w, struct node *node, uint32_t instance,
                 const struct request *request);
void seat_receive(struct world *w, struct node *node, const struct message *message);
void seat_link_down(struct world *w, struct node *node, uint32_t other, uint64_t link);
void seat_turn(struct world *w, struct node *node);
void seat_carry(struct world *w, struct node *node); /* what drivers' events have led to */
void seat_say(const struct world *w, const struct node *node, struct said *out);

/* ---- check.c ---- */
bool check_init(struct world *w);
void check_deinit(struct world *w);
void check_leader(struct world *w, const struct node *node, const struct replica_status *status);
void check_applied(struct world *w, struct node *node, const struct replica_effect *effect);
void check_state(struct world *w, struct node *node, struct lineage lineage, uint64_t index);
void check_placed(struct world *w, struct node *node, struct lineage lineage,
                  const Cluster__InstancePlaced *placed);
/* Of what needs an admin's signature: an honest node asks for it; it counts somewhere. */
void check_asked(struct world *w, const Cluster__Event *event);
void check_signed(struct world *w, const struct node *node, const Cluster__Event *event);
void check_acknowledged(struct world *w, struct node *node, uint64_t index);
bool check_converged(struct world *w, char *why, size_t size);
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size);
