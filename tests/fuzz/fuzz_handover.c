/* The hand-over of caches between two honest nodes while a hostile member speaks to both, and
 * between an honest and a hostile one that has a part in it. The hostile one knows the placements,
 * the instance and what was offered, and sends offers, rows, acknowledgements and ends, some with
 * bytes changed. Holds: who has no part in it changes nothing, so that the new driver begins with
 * all slots, and every row is written once, in order, and as it was read; whoever has a part in it:
 * rows are written in order and within the slots that were offered, they are given to who has the
 * layer next alone, and the driver begins once. */
#include "hostile_peer.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "hosting/handover.h"

#include <string.h>

enum {
    GIVER = 1,
    TAKER = 2,
    INTRUDER = 3,
    LAYERS = 3,
    SLOTS = 4,
    TOKENS = 40,
    CONTEXT = 100,
    ROW = 16,
    STATE_ROWS = 70, /* of the second layer, whatever a slot's length */
    OLD = 7,
    NEW = 9,
    INSTANCE = 5,
    SENT_MAX = 128,
};

struct sent_message {
    uint8_t from, to;
    struct buffer bytes;
};

struct handed {
    struct hostile_input in;
    uint8_t hostile; /* who it is */
    uint64_t now_ms;
    struct handover_part from, to;
    struct cache_give give;
    struct cache_take take;
    struct sent_message sent[SENT_MAX];
    uint32_t n_sent, n_written[LAYERS][SLOTS], n_begun;
    bool is_full, quiesced, quiesces;
};

static const int32_t texts[2][TOKENS] = {{1, 2, 3, 4, 5}, {9, 8, 7}};
static const struct cached_slot slots[] = {{1, TOKENS, texts[0], 0}, {3, TOKENS - 9, texts[1], 0}};

static void name_node(uint8_t id[NODE_ID_BYTES], uint8_t node)
{
    memset(id, 0, NODE_ID_BYTES);
    id[0] = node;
}

static struct handover_placement placed(uint64_t epoch, uint8_t node)
{
    struct handover_placement placement = {.epoch = epoch, .n_stages = 1};
    placement.stages[0].n_layers = LAYERS;
    name_node(placement.stages[0].node_id, node);
    return placement;
}

static void describe(struct handover_part *part, uint64_t epoch, uint8_t node)
{
    *part = (struct handover_part){.instance = INSTANCE,
                                   .of = placed(epoch, node),
                                   .row_bytes = {ROW},
                                   .n_slots = SLOTS,
                                   .context = CONTEXT,
                                   .n_vocab = 1000,
                                   .is_recurrent = {false, true},
                                   .state_rows = STATE_ROWS,
                                   .is_loaded = true};
    name_node(part->node_id, node);
}

/* What the old caches have: a row of a layer and a slot is like no other. */
static void fill_row(uint32_t layer, uint32_t slot, uint32_t position, unsigned char row[ROW])
{
    memset(row, 0xa5, ROW);
    bytes_store(row, 4, layer + 1);
    bytes_store(row + 4, 4, slot);
    bytes_store(row + 8, 4, position);
}

/* ---- what the machines want ---- */

static void handed_read(struct handed *f, struct handover_effect *e)
{
    unsigned char row[ROW];
    FUZZ_CHECK(e->stage == 0 && e->run.layer < LAYERS && e->run.slot < SLOTS &&
               e->run.first + e->run.n_rows <= CONTEXT);
    for (uint32_t i = 0; i < e->run.n_rows; i++) {
        fill_row(e->run.layer, e->run.slot, e->run.first + i, row);
        buffer_append(&e->message, row, ROW);
    }
    cache_give_read(&f->give, e, NULL);
}

static void handed_write(struct handed *f, struct handover_effect *e)
{
    unsigned char row[ROW];
    const struct kv_run *run = &e->run;
    FUZZ_CHECK(e->stage == 0 && run->layer < LAYERS && run->slot < SLOTS && run->n_rows &&
               run->first + run->n_rows <= CONTEXT);
    FUZZ_CHECK(e->message.size == CACHE_ROWS_BYTES + (size_t)run->n_rows * ROW);
    FUZZ_CHECK(run->first == f->n_written[run->layer][run->slot]);
    f->n_written[run->layer][run->slot] += run->n_rows;
    for (uint32_t i = 0; i < run->n_rows && f->hostile == INTRUDER; i++) {
        fill_row(run->layer, run->slot, run->first + i, row);
        FUZZ_CHECK(memcmp(e->message.data + CACHE_ROWS_BYTES + (size_t)i * ROW, row, ROW) == 0);
        honest_checked++;
    }
    cache_take_written(&f->take, e, NULL);
}

static void handed_send(struct handed *f, struct handover_effect *e, uint8_t from)
{
    const uint8_t to = e->node_id[0];
    FUZZ_CHECK((to == GIVER || to == TAKER) && f->n_sent < SENT_MAX);
    f->sent[f->n_sent++] = (struct sent_message){from, to, e->message};
    e->message = (struct buffer){0};
}

static void handed_carry_out(struct handed *f, struct handover_effect *e, uint8_t by)
{
    switch (e->type) {
    case HANDOVER_SEND:
        handed_send(f, e, by);
        break;
    case HANDOVER_QUIESCE:
        f->quiesces = true;
        break;
    case HANDOVER_READ:
        handed_read(f, e);
        break;
    case HANDOVER_WRITE:
        handed_write(f, e);
        break;
    case HANDOVER_SETTLE:
        cache_take_settled(&f->take, NULL);
        break;
    case HANDOVER_BEGIN:
        FUZZ_CHECK(!f->n_begun++);
        f->is_full = e->is_full;
        cache_take_begun(&f->take, true);
        break;
    case HANDOVER_RETIRE:
    case HANDOVER_CHANGED:
    case HANDOVER_NOTE:
        break;
    }
}

static void handed_pump(struct handed *f)
{
    struct handover_effect e;
    bool gives;
    while ((gives = cache_give_next(&f->give, &e)) || cache_take_next(&f->take, &e)) {
        handed_carry_out(f, &e, gives ? GIVER : TAKER);
        handover_effect_clear(&e);
    }
}

/* ---- messages ---- */

static bool handed_hear(struct handed *f, uint8_t from, uint8_t to, struct buffer *bytes)
{
    struct cache_message message;
    uint8_t own[NODE_ID_BYTES], other[NODE_ID_BYTES];
    if (cache_read(bytes->data, bytes->size, &message, NULL))
        return false;
    name_node(own, to);
    name_node(other, from);
    /* Who owns the parts finds them by the route (hosting/hosting_cache.c). */
    const bool gives =
        to == GIVER && message.route.instance == INSTANCE && message.route.from_epoch == OLD;
    const bool takes =
        to == TAKER && message.route.instance == INSTANCE && message.route.to_epoch == NEW;
    handover_receive(gives ? &f->give : NULL, takes ? &f->take : NULL, f->now_ms, own, other,
                     &message, bytes);
    handed_pump(f);
    return true;
}

static bool handed_deliver_one(struct handed *f)
{
    if (!f->n_sent)
        return false;
    struct sent_message one = f->sent[0];
    memmove(f->sent, f->sent + 1, --f->n_sent * sizeof *f->sent);
    FUZZ_CHECK(handed_hear(f, one.from, one.to, &one.bytes));
    buffer_deinit(&one.bytes);
    return true;
}

static void hostile_offer(struct handed *f, const struct cache_route *route, struct buffer *out)
{
    static unsigned char tokens[4 * CONTEXT];
    struct cache_offer offer = {.patience_ms = hostile_draw(&f->in) * 100,
                                .n_slots = hostile_draw(&f->in) % 4};
    for (uint32_t i = 0; i < offer.n_slots; i++) {
        offer.slots[i].slot = i + hostile_draw(&f->in) % 3;
        offer.slots[i].n_tokens = hostile_draw(&f->in) % CONTEXT;
        offer.slots[i].tokens = tokens;
    }
    cache_write_offer(route, &offer, out);
}

static void hostile_rows(struct handed *f, const struct cache_route *route, struct buffer *out)
{
    static const unsigned char row[ROW] = "made up";
    struct kv_run run = {.layer = hostile_draw(&f->in) % (LAYERS + 1),
                         .slot = hostile_draw(&f->in) % (SLOTS + 1),
                         .n_rows = 1 + hostile_draw(&f->in) % 30};
    const uint32_t layer = run.layer < LAYERS ? run.layer : 0;
    run.first = (uint32_t)hostile_near(&f->in, f->n_written[layer][run.slot % SLOTS]) % 2000;
    cache_write_rows(route, &run, ROW, out);
    for (uint32_t i = 0; i < run.n_rows; i++)
        buffer_append(out, row, ROW);
}

static void hostile_speak(struct handed *f)
{
    struct cache_route route = {.instance = INSTANCE, .from_epoch = OLD, .to_epoch = NEW};
    struct buffer bytes = {0};
    if (hostile_draw(&f->in) > 224)
        route.from_epoch = hostile_near(&f->in, OLD);
    if (hostile_draw(&f->in) > 224)
        route.to_epoch = hostile_near(&f->in, NEW);
    if (hostile_draw(&f->in) > 240)
        route.instance = hostile_near(&f->in, INSTANCE);
    switch (hostile_draw(&f->in) % 5) {
    case 0:
        hostile_offer(f, &route, &bytes);
        break;
    case 1:
    case 2:
        hostile_rows(f, &route, &bytes);
        break;
    case 3:
        cache_write_taken(&route, &bytes);
        break;
    default:
        cache_write_done(&route, hostile_draw(&f->in) % 2, &bytes);
        break;
    }
    FUZZ_CHECK(!bytes.failed);
    hostile_bend(&f->in, bytes.data, bytes.size);
    const uint8_t to = f->hostile == GIVER   ? TAKER
                       : f->hostile == TAKER ? GIVER
                                             : (uint8_t)(GIVER + hostile_draw(&f->in) % 2);
    hostile_sent++;
    hostile_refused += !handed_hear(f, f->hostile, to, &bytes);
    buffer_deinit(&bytes);
}

/* ---- a run ---- */

static void handed_open(struct handed *f)
{
    const struct handover_placement old = placed(OLD, GIVER), next = placed(NEW, TAKER);
    describe(&f->from, OLD, GIVER);
    describe(&f->to, NEW, TAKER);
    f->to.is_current = true;
    cache_give_init(&f->give, &f->from);
    cache_take_init(&f->take, &f->to);
    cache_take_open(&f->take, &old);
    FUZZ_CHECK(cache_give_begin(&f->give, f->now_ms, &next, true));
    handed_pump(f);
}

static void handed_quiesce(struct handed *f)
{
    if (f->quiesced || !f->quiesces || !cache_give_wants_slots(&f->give))
        return;
    f->quiesced = true;
    cache_give_quiesced(&f->give, f->now_ms, slots, sizeof slots / sizeof *slots,
                        &(struct give_costs){0});
    handed_pump(f);
}

static void handed_end(struct handed *f)
{
    handed_quiesce(f);
    while (handed_deliver_one(f))
        ;
    if (f->hostile == INTRUDER) {
        FUZZ_CHECK(f->n_begun == 1 && f->is_full);
        for (uint32_t i = 0; i < LAYERS; i++)
            FUZZ_CHECK(f->n_written[i][1] == (i == 1 ? STATE_ROWS : TOKENS) &&
                       f->n_written[i][3] == (i == 1 ? STATE_ROWS : TOKENS - 9));
    }
    for (int i = 0; i < 100 && !f->n_begun; i++) { /* whatever is lost, it ends */
        f->now_ms += 1000;
        cache_give_tick(&f->give, f->now_ms);
        cache_take_tick(&f->take, f->now_ms, true);
        handed_pump(f);
        while (handed_deliver_one(f))
            ;
    }
    FUZZ_CHECK(f->n_begun == 1);
    cache_give_clear(&f->give);
    cache_take_clear(&f->take);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct handed f;
    hostile_begin();
    for (uint8_t hostile = GIVER; hostile <= INTRUDER; hostile++) {
        f = (struct handed){.in = {data, data + size}, .hostile = hostile, .now_ms = 1000};
        handed_open(&f);
        while (f.in.at < f.in.end) {
            const unsigned what = hostile_draw(&f.in);
            if (what < 216)
                hostile_speak(&f);
            else if (what < 250)
                handed_deliver_one(&f);
            else
                handed_quiesce(&f);
        }
        handed_end(&f);
    }
    return 0;
}
