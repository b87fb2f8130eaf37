/* A hash that is continued elsewhere, and machines that gather a file: with lost nodes, nodes that
 * stand still, wrong bytes and answers that nobody asked for, by seeds. */
#include "base/mem.h"
#include "base/random.h"
#include "gathering/gather.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
    UNITS_MAX = 40,
    NODES_MAX = 6,
    FILE_MAX = UNITS_MAX * 6000,
    FILES_MAX = 4,
    STEP_MS = 100,
    SEEDS = 300
};
#define MS UINT64_C(1000000)

/* ---- the chain ------------------------------------------------------------------------------- */

static void fill(uint8_t *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_at(seed, i);
}

static void a_chain_is_the_digest_whatever_the_pieces(void **state)
{
    (void)state;
    static uint8_t bytes[5000];
    for (uint64_t seed = 0; seed < 200; seed++) {
        const size_t size = random_at(seed, 1) % sizeof bytes;
        struct digest expected, found;
        struct digest_chain chain;
        fill(bytes, size, seed);
        digest_of(bytes, size, &expected, NULL);
        digest_chain_begin(&chain);
        for (size_t at = 0, n = 2; at < size; n++) {
            uint8_t wire[DIGEST_CHAIN_BYTES];
            size_t piece = random_at(seed, n) % 300;
            piece = piece < size - at ? piece : size - at;
            digest_chain_add(&chain, bytes + at, piece);
            at += piece;
            digest_chain_write(&chain, wire);
            memset(&chain, 0xaa, sizeof chain);
            assert_int_equal(digest_chain_read(wire, sizeof wire, &chain, NULL), ERROR_NONE);
            assert_true(chain.length == at);
        }
        digest_chain_end(&chain, &found);
        assert_true(digest_equal(&expected, &found));
    }
}

/* FIPS 180-4's own example, so that no common mistake of both sides passes. */
static void a_chain_of_a_known_text(void **state)
{
    (void)state;
    char text[DIGEST_TEXT];
    struct digest digest;
    struct digest_chain chain;
    digest_chain_begin(&chain);
    digest_chain_add(&chain, "ab", 2);
    digest_chain_add(&chain, "c", 1);
    digest_chain_end(&chain, &digest);
    assert_string_equal(digest_text(&digest, text),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void a_hostile_chain_is_refused(void **state)
{
    (void)state;
    uint8_t wire[DIGEST_CHAIN_BYTES];
    struct digest_chain chain;
    digest_chain_begin(&chain);
    digest_chain_add(&chain, "abc", 3);
    digest_chain_write(&chain, wire);
    for (size_t size = 0; size < sizeof wire; size++)
        assert_int_equal(digest_chain_read(wire, size, &chain, NULL), ERROR_INVALID);
    wire[40 + 3] = 1; /* behind the rest */
    assert_int_equal(digest_chain_read(wire, sizeof wire, &chain, NULL), ERROR_INVALID);
    wire[40 + 3] = 0;
    wire[39] = 0xff; /* a length beyond what SHA-256 counts */
    assert_int_equal(digest_chain_read(wire, sizeof wire, &chain, NULL), ERROR_INVALID);
    wire[39] = 0;
    wire[104] = 2; /* another format */
    assert_int_equal(digest_chain_read(wire, sizeof wire, &chain, NULL), ERROR_INVALID);
}

/* ---- a made-up cluster ----------------------------------------------------------------------- */

struct gather_machine {
    uint8_t bytes[FILE_MAX]; /* its copy */
    bool has[UNITS_MAX], is_own[UNITS_MAX], said[UNITS_MAX];
    double speed, budget;        /* bytes a second; that it may fetch now */
    uint64_t dies_ms, stands_ms; /* 0: never */
    uint32_t round;
    bool is_dead;
    struct gather_action step; /* kind: it hashes … */
    uint64_t step_ms;          /* … and answers then */
};

struct gather_world {
    uint64_t seed, draws, now_ms;
    uint8_t file[FILE_MAX];
    struct gather_unit units[UNITS_MAX];
    uint64_t begins[FILES_MAX + 1]; /* of each model file, among the bytes of all */
    struct digest wholes[FILES_MAX];
    uint32_t n_units, n_nodes, owners[UNITS_MAX];
    uint64_t peer_speeds[NODES_MAX], fetched, wrong_ms;
    struct gather_machine machines[NODES_MAX];
    uint32_t wrong_rounds, n_wrong; /* wrong bytes come in so many rounds; that came in this one */
    struct gather *gather;
};

static uint64_t draw(struct gather_world *w, uint64_t n)
{
    return random_at(w->seed, w->draws++) % n;
}

static uint64_t unit_place(const struct gather_world *w, uint32_t unit)
{
    return w->begins[w->units[unit].file] + w->units[unit].offset;
}

/* One file of most; files that are a header alone are among the others. */
static void make_units(struct gather_world *w)
{
    const bool is_one = draw(w, 3) == 0;
    uint64_t at = 0;
    uint32_t file = 0;
    for (uint32_t i = 0; i < w->n_units; i++) {
        const uint64_t size = 1 + draw(w, 5000), padding = draw(w, 32);
        if (i && !is_one && file + 1 < FILES_MAX && draw(w, 6) == 0)
            w->begins[++file] = at;
        const uint64_t offset = at - w->begins[file];
        w->units[i] = (struct gather_unit){offset, size, offset + size + padding, file};
        w->owners[i] = draw(w, 4) ? (uint32_t)draw(w, w->n_nodes) : GATHER_ANYBODY;
        at += size + padding;
        w->begins[file + 1] = at;
    }
    fill(w->file, at, w->seed);
    for (uint32_t i = 0; i <= file; i++)
        digest_of(w->file + w->begins[i], w->begins[i + 1] - w->begins[i], &w->wholes[i], NULL);
}

static void make_world(struct gather_world *w, uint64_t seed)
{
    *w = (struct gather_world){.seed = seed};
    w->n_units = 2 + (uint32_t)draw(w, UNITS_MAX - 1);
    w->n_nodes = 1 + (uint32_t)draw(w, NODES_MAX);
    make_units(w);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        w->machines[i].speed = 500 + (double)draw(w, 20000);
        w->peer_speeds[i] = draw(w, 3) ? 100000 : 0;
        if (i && draw(w, 3) == 0)
            w->machines[i].dies_ms = 1 + draw(w, 20000);
        else if (i && draw(w, 5) == 0)
            w->machines[i].stands_ms = 1 + draw(w, 10000);
    }
    const struct gather_options options = {.units = w->units,
                                           .n_units = w->n_units,
                                           .wholes = w->wholes,
                                           .n_nodes = w->n_nodes,
                                           .owners = w->owners,
                                           .peer_bytes_per_s = w->peer_speeds};
    assert_int_equal(gather_new(&options, 0, &w->gather, NULL), ERROR_NONE);
}

static void machine_order(struct gather_world *w, uint32_t node)
{
    struct gather_machine *machine = &w->machines[node];
    if (machine->round != gather_round(w->gather)) {
        machine->round = gather_round(w->gather);
        memset(machine->has, 0, sizeof machine->has);
        memset(machine->said, 0, sizeof machine->said);
        machine->step.kind = GATHER_NOTHING;
    }
    for (uint32_t i = 0; i < w->n_units; i++) {
        machine->is_own[i] = gather_is_of(w->gather, node, i);
        machine->said[i] = machine->said[i] && machine->is_own[i];
    }
}

static void machine_fetch(struct gather_world *w, struct gather_machine *machine)
{
    const bool stands = machine->stands_ms && w->now_ms >= machine->stands_ms;
    machine->budget += stands ? 0 : machine->speed * STEP_MS * 1e-3;
    for (uint32_t i = 0; i < w->n_units; i++) {
        const struct gather_unit *unit = &w->units[i];
        const uint64_t bytes = unit->end - unit->offset;
        if (!machine->is_own[i] || machine->has[i])
            continue;
        if ((double)bytes > machine->budget)
            return;
        machine->budget -= (double)bytes;
        machine->has[i] = true;
        w->fetched += bytes;
        memcpy(machine->bytes + unit_place(w, i), w->file + unit_place(w, i), bytes);
        if (machine->round < w->wrong_rounds && draw(w, 6) == 0) {
            machine->bytes[unit_place(w, i) + draw(w, bytes)] ^= 1;
            w->n_wrong++;
        }
    }
    machine->budget = 0;
}

static void machine_tell(struct gather_world *w, uint32_t node)
{
    struct gather_machine *machine = &w->machines[node];
    uint64_t here = 0;
    for (uint32_t i = 0; i < w->n_units; i++) {
        const struct gather_unit *unit = &w->units[i];
        struct digest digest;
        if (!machine->is_own[i] || !machine->has[i])
            continue;
        here += unit->end - unit->offset;
        if (machine->said[i] || draw(w, 3) == 0)
            continue;
        digest_of(machine->bytes + unit_place(w, i), unit->size, &digest, NULL);
        machine->said[i] = true;
        gather_hashed(w->gather, w->now_ms * MS, node, i, &digest);
        assert_false(gather_hashed(w->gather, w->now_ms * MS, node, i, &digest)); /* twice */
    }
    gather_told(w->gather, w->now_ms * MS, node, here, (uint64_t)machine->speed);
}

static void machine_chain(struct gather_world *w, uint32_t node)
{
    struct gather_machine *machine = &w->machines[node];
    struct gather_action step = machine->step;
    if (step.kind != GATHER_CHAIN || w->now_ms < machine->step_ms ||
        (machine->stands_ms && w->now_ms >= machine->stands_ms))
        return;
    machine->step.kind = GATHER_NOTHING;
    for (uint32_t i = step.first; i < step.end; i++) {
        assert_true(machine->has[i]);
        assert_int_equal(w->units[i].file, w->units[step.first].file);
        digest_chain_add(&step.chain, machine->bytes + unit_place(w, i),
                         w->units[i].end - w->units[i].offset);
    }
    const struct digest_chain shorter = {.length = 1};
    const uint64_t now_ns = w->now_ms * MS;
    assert_false(gather_chained(w->gather, now_ns, node, step.first, step.end, &shorter));
    assert_false(gather_chained(w->gather, now_ns, node, step.first, step.end + 1, &step.chain));
    assert_false(gather_chained(w->gather, now_ns, node + 1, step.first, step.end, &step.chain));
    assert_true(gather_chained(w->gather, now_ns, node, step.first, step.end, &step.chain));
    assert_false(gather_chained(w->gather, now_ns, node, step.first, step.end, &step.chain));
}

static void act(struct gather_world *w)
{
    struct gather_action action;
    uint32_t n = 0;
    while ((action = gather_next(w->gather, w->now_ms * MS)).kind != GATHER_NOTHING) {
        assert_true(++n < 1000 && action.node < w->n_nodes);
        if (action.kind == GATHER_ORDER) {
            machine_order(w, action.node);
            continue;
        }
        assert_true(action.chain.length == w->units[action.first].offset);
        w->machines[action.node].step = action;
        w->machines[action.node].step_ms = w->now_ms + draw(w, 400);
    }
}

static enum gather_status run_world(struct gather_world *w)
{
    while (gather_status(w->gather) == GATHER_RUNNING) {
        assert_true(w->now_ms < 3600 * 1000);
        act(w);
        w->now_ms += STEP_MS;
        for (uint32_t i = 0; i < w->n_nodes; i++) {
            struct gather_machine *machine = &w->machines[i];
            if (machine->dies_ms && w->now_ms >= machine->dies_ms && !machine->is_dead) {
                machine->is_dead = true;
                gather_lost(w->gather, w->now_ms * MS, i);
            }
            if (machine->is_dead)
                continue;
            machine_fetch(w, machine);
            machine_tell(w, i);
            machine_chain(w, i);
        }
    }
    return gather_status(w->gather);
}

/* Every unit is at a node that is there, with the file's own bytes. */
static void check_done(const struct gather_world *w)
{
    for (uint32_t i = 0; i < w->n_units; i++) {
        const struct gather_unit *unit = &w->units[i];
        struct digest expected;
        uint32_t n = 0;
        digest_of(w->file + unit_place(w, i), unit->size, &expected, NULL);
        assert_true(digest_equal(&expected, gather_digest(w->gather, i)));
        for (uint32_t node = 0; node < w->n_nodes; node++) {
            if (!gather_is_of(w->gather, node, i) || gather_progress(w->gather, node).is_lost)
                continue;
            n++;
            assert_false(w->machines[node].is_dead);
            assert_true(w->machines[node].has[i]);
            assert_memory_equal(w->machines[node].bytes + unit_place(w, i),
                                w->file + unit_place(w, i), unit->end - unit->offset);
        }
        assert_true(gather_is_header(w->units, i) ? n >= 1 : n == 1);
    }
}

static void it_ends_well_whoever_is_lost(void **state)
{
    (void)state;
    struct gather_world *w = mem_new(sizeof *w);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        make_world(w, seed);
        const enum gather_status status = run_world(w);
        if (status != GATHER_DONE)
            fail_msg("seed %llu: status %d", (unsigned long long)seed, status);
        check_done(w);
        gather_free(w->gather);
    }
    mem_free(w);
}

static void wrong_bytes_never_count(void **state)
{
    (void)state;
    struct gather_world *w = mem_new(sizeof *w);
    uint32_t n_again = 0, n_twice = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        make_world(w, seed);
        w->wrong_rounds = 1 + (uint32_t)draw(w, 2);
        enum gather_status status = run_world(w);
        if (status == GATHER_WRONG) {
            assert_true(w->n_wrong > 0);
            assert_true(gather_again(w->gather, w->now_ms * MS));
            n_again++;
            status = run_world(w);
        }
        if (status == GATHER_WRONG) {
            assert_int_equal(w->wrong_rounds, 2);
            assert_false(gather_again(w->gather, w->now_ms * MS));
            n_twice++;
        } else {
            assert_int_equal(status, GATHER_DONE);
            check_done(w);
        }
        gather_free(w->gather);
    }
    assert_true(n_again > SEEDS / 4 && n_twice > SEEDS / 10);
    mem_free(w);
}

static void an_idle_one_helps_a_slow_one(void **state)
{
    (void)state;
    struct gather_world *w = mem_new(sizeof *w);
    uint64_t took_ms[2];
    for (int helps = 0; helps < 2; helps++) {
        make_world(w, 5);
        gather_free(w->gather);
        w->n_nodes = 2;
        w->n_units = 31;
        for (uint32_t i = 0; i < w->n_units; i++) {
            w->units[i] = (struct gather_unit){i * 1000, 1000, i * 1000 + 1000, 0};
            w->owners[i] = i % 2;
        }
        w->machines[0] = (struct gather_machine){.speed = 5000};
        w->machines[1] = (struct gather_machine){.speed = 500};
        w->peer_speeds[0] = w->peer_speeds[1] = helps ? 10000 : 0;
        const struct gather_options options = {.units = w->units,
                                               .n_units = w->n_units,
                                               .wholes = w->wholes,
                                               .n_nodes = 2,
                                               .owners = w->owners,
                                               .peer_bytes_per_s = w->peer_speeds};
        w->begins[0] = 0;
        digest_of(w->file, 31000, &w->wholes[0], NULL);
        assert_int_equal(gather_new(&options, 0, &w->gather, NULL), ERROR_NONE);
        assert_int_equal(run_world(w), GATHER_DONE);
        check_done(w);
        took_ms[helps] = w->now_ms;
        assert_true(w->fetched <= 31000 + 2 * 1000);
        gather_free(w->gather);
    }
    assert_true(took_ms[1] * 2 < took_ms[0]);
    mem_free(w);
}

static void what_holds_no_file_together_is_refused(void **state)
{
    (void)state;
    struct gather *gather;
    const uint32_t owners[3] = {0};
    struct gather_unit units[3] = {{0, 5, 8, 0}, {8, 8, 16, 0}, {16, 1, 20, 0}};
    const struct digest wholes[2] = {{{0}}};
    struct gather_options options = {
        .units = units, .n_units = 3, .wholes = wholes, .n_nodes = 1, .owners = owners};
    assert_int_equal(gather_new(&options, 0, &gather, NULL), ERROR_NONE);
    const struct digest digest = {{0}};
    const struct digest_chain chain = {.length = 20};
    assert_false(gather_hashed(gather, 0, 1, 0, &digest));
    assert_false(gather_hashed(gather, 0, 0, 3, &digest));
    assert_false(gather_told(gather, 0, 0, 21, 5));
    assert_false(gather_chained(gather, 0, 0, 0, 3, &chain));
    gather_free(gather);
    units[1].offset = 7; /* an overlap */
    assert_int_equal(gather_new(&options, 0, &gather, NULL), ERROR_INVALID);
    units[1].offset = 8;
    units[1].size = 9; /* beyond its end */
    assert_int_equal(gather_new(&options, 0, &gather, NULL), ERROR_INVALID);
    units[1].size = 8;
    units[2].file = 1; /* a second file that does not begin at its begin */
    assert_int_equal(gather_new(&options, 0, &gather, NULL), ERROR_INVALID);
    units[2] = (struct gather_unit){0, 1, 4, 2}; /* a third without a second */
    assert_int_equal(gather_new(&options, 0, &gather, NULL), ERROR_INVALID);
    units[2] = (struct gather_unit){16, 1, 20, 0};
    options.n_nodes = GATHER_NODES + 1;
    assert_int_equal(gather_new(&options, 0, &gather, NULL), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_the_digest_whatever_the_pieces),
        cmocka_unit_test(a_chain_of_a_known_text),
        cmocka_unit_test(a_hostile_chain_is_refused),
        cmocka_unit_test(it_ends_well_whoever_is_lost),
        cmocka_unit_test(wrong_bytes_never_count),
        cmocka_unit_test(an_idle_one_helps_a_slow_one),
        cmocka_unit_test(what_holds_no_file_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
