/* Fetching: the plan against simulated peers that are slow, silent, gone, refuse and lie. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"
#include "model/gguf_file.h"
#include "weights/fetch.h"
#include "weights/manifest_make.h"
#include "weights/shelf.h"
#include "weights/weight_source.h"
#include "weights_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a simulated network ---- */

enum { PEERS_MAX = 8, PARTS_MAX = 40, CHUNKS_MAX = 4096, MAIL_MAX = 8192, CHUNK = 1 << 20 };
static const double NEVER = 1e30;

struct sim_peer {
    double bytes_per_s, latency_s;
    double silent_from_s, silent_to_s, gone_s;
    uint32_t lies_permille, refuses_permille, lacks_permille;
    struct part_set has;
    double busy_until_s;
    uint64_t asked_bytes, sent_bytes, owed;
    bool is_gone, is_known;
};

struct mail {
    double at_s;
    struct fetch_action ask;
    enum { MAIL_NONE, MAIL_CHUNK, MAIL_BAD, MAIL_BUSY, MAIL_LACKS, MAIL_VERIFY } what;
};

struct sim {
    uint64_t seed, counter;
    double now_s;
    struct manifest manifest;
    struct part_set wanted;
    struct fetch *fetch;
    struct fetch_settings settings;
    struct sim_peer peers[PEERS_MAX];
    uint32_t n_peers, n_steps;
    struct mail mail[MAIL_MAX];
    bool is_bad[PARTS_MAX][CHUNKS_MAX / PARTS_MAX];
    bool is_good[PARTS_MAX];
    uint64_t written, asked, owed, owed_most;
};

static uint64_t draw(struct sim *sim, uint64_t below)
{
    return random_at(sim->seed, sim->counter++) % below;
}

static uint64_t to_ns(double s)
{
    return (uint64_t)(s * 1e9) + 1;
}

static void sim_init(struct sim *sim, uint64_t seed, const uint64_t *sizes, uint32_t n)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->settings.chunk_bytes = CHUNK;
    sim->manifest =
        (struct manifest){.n_parts = n, .parts = mem_new_array(n, sizeof *sim->manifest.parts)};
    for (uint32_t i = 0; i < n; i++) {
        sim->manifest.parts[i] =
            (struct manifest_part){.offset = sim->manifest.size, .size = sizes[i]};
        if (i)
            snprintf(sim->manifest.parts[i].name, MANIFEST_PART_NAME, "tensor.%u", i);
        sim->manifest.size += sizes[i];
    }
    part_set_init(&sim->wanted, n, NULL);
    part_set_add_all(&sim->wanted);
}

static void sim_deinit(struct sim *sim)
{
    fetch_free(sim->fetch);
    manifest_deinit(&sim->manifest);
    part_set_deinit(&sim->wanted);
    for (uint32_t i = 0; i < sim->n_peers; i++)
        part_set_deinit(&sim->peers[i].has);
}

/* Has everything and never fails. */
static struct sim_peer *sim_peer(struct sim *sim, double bytes_per_s, double latency_s)
{
    struct sim_peer *peer = &sim->peers[sim->n_peers++];
    *peer = (struct sim_peer){.bytes_per_s = bytes_per_s,
                              .latency_s = latency_s,
                              .silent_from_s = NEVER,
                              .silent_to_s = NEVER,
                              .gone_s = NEVER};
    part_set_init(&peer->has, sim->manifest.n_parts, NULL);
    part_set_add_all(&peer->has);
    return peer;
}

static struct mail *post(struct sim *sim, double at_s, struct fetch_action ask)
{
    for (uint32_t i = 0; i < MAIL_MAX; i++) {
        if (sim->mail[i].what == MAIL_NONE) {
            sim->mail[i] = (struct mail){.at_s = at_s, .ask = ask, .what = MAIL_CHUNK};
            return &sim->mail[i];
        }
    }
    fail_msg("too much mail");
    return NULL;
}

static void check_ask(struct sim *sim, const struct fetch_action *ask)
{
    struct sim_peer *peer = &sim->peers[ask->peer];
    const struct manifest_part *part = &sim->manifest.parts[ask->part];
    assert_true(ask->peer < sim->n_peers && !peer->is_gone && part_set_has(&peer->has, ask->part));
    assert_true(part_set_has(&sim->wanted, ask->part) && !sim->is_good[ask->part]);
    assert_true(ask->size >= 1 && ask->size <= CHUNK && ask->offset % CHUNK == 0 &&
                ask->offset + ask->size <= part->size);
    assert_true(ask->size == CHUNK || ask->offset + ask->size == part->size);
    struct fetch_peer_notes notes = fetch_peer_notes(sim->fetch, ask->peer);
    assert_false(notes.is_out || notes.has_lied);
}

static void asked(struct sim *sim, const struct fetch_action *ask)
{
    struct sim_peer *peer = &sim->peers[ask->peer];
    check_ask(sim, ask);
    peer->asked_bytes += ask->size;
    sim->asked += ask->size;
    sim->owed += ask->size;
    sim->owed_most = sim->owed > sim->owed_most ? sim->owed : sim->owed_most;
    double begin = sim->now_s + peer->latency_s > peer->busy_until_s ? sim->now_s + peer->latency_s
                                                                     : peer->busy_until_s;
    if (begin >= peer->silent_from_s && begin < peer->silent_to_s)
        return; /* never answered */
    bool refused = draw(sim, 1000) < peer->refuses_permille,
         lacks = draw(sim, 1000) < peer->lacks_permille;
    if (!refused && !lacks)
        peer->busy_until_s = begin + ask->size / peer->bytes_per_s;
    struct mail *mail =
        post(sim, (refused || lacks ? begin : peer->busy_until_s) + peer->latency_s, *ask);
    if (refused || lacks)
        mail->what = lacks ? MAIL_LACKS : MAIL_BUSY;
    else if (draw(sim, 1000) < peer->lies_permille)
        mail->what = MAIL_BAD;
}

static void cancelled(struct sim *sim, const struct fetch_action *cancel)
{
    for (uint32_t i = 0; i < MAIL_MAX; i++) { /* some come nevertheless */
        struct mail *mail = &sim->mail[i];
        if (mail->what != MAIL_NONE && mail->what != MAIL_VERIFY && mail->ask.id == cancel->id &&
            draw(sim, 2))
            mail->what = MAIL_NONE;
    }
}

static void act(struct sim *sim)
{
    struct fetch_action action;
    for (uint32_t n = 0; (action = fetch_next(sim->fetch, to_ns(sim->now_s))).kind != FETCH_NOTHING;
         n++) {
        assert_true(n < 100000);
        if (action.kind == FETCH_ASK)
            asked(sim, &action);
        else if (action.kind == FETCH_CANCEL)
            cancelled(sim, &action);
        else
            post(sim, sim->now_s + (double)sim->manifest.parts[action.part].size / 1e9, action)
                ->what = MAIL_VERIFY;
    }
}

static void verify(struct sim *sim, uint32_t part)
{
    bool good = true;
    for (uint64_t c = 0; c * CHUNK < sim->manifest.parts[part].size; c++)
        good = good && !sim->is_bad[part][c];
    assert_false(sim->is_good[part]);
    sim->is_good[part] = good;
    fetch_verified(sim->fetch, to_ns(sim->now_s), part, good);
}

static void deliver(struct sim *sim, struct mail *mail)
{
    struct mail now = *mail;
    struct fetch_action where = {0};
    mail->what = MAIL_NONE;
    if (now.what == MAIL_VERIFY) {
        verify(sim, now.ask.part);
    } else if (sim->peers[now.ask.peer].is_gone) {
        return;
    } else if (now.what == MAIL_BUSY || now.what == MAIL_LACKS) {
        sim->owed -= now.ask.size;
        fetch_refused(sim->fetch, to_ns(sim->now_s), now.ask.peer, now.ask.id,
                      now.what == MAIL_LACKS);
    } else {
        sim->owed -= now.ask.size;
        enum fetch_take take = fetch_chunk(sim->fetch, to_ns(sim->now_s), now.ask.peer, now.ask.id,
                                           now.ask.size, &where);
        assert_true(take == FETCH_WRITE || take == FETCH_IGNORE);
        if (take == FETCH_WRITE) {
            assert_true(where.part == now.ask.part && where.offset == now.ask.offset &&
                        where.size == now.ask.size);
            sim->is_bad[where.part][where.offset / CHUNK] = now.what == MAIL_BAD;
            sim->written += where.size;
            sim->peers[now.ask.peer].sent_bytes += where.size;
        }
    }
}

static struct mail *first_mail(struct sim *sim)
{
    struct mail *first = NULL;
    for (uint32_t i = 0; i < MAIL_MAX; i++) {
        if (sim->mail[i].what != MAIL_NONE && (!first || sim->mail[i].at_s < first->at_s))
            first = &sim->mail[i];
    }
    return first;
}

static void let_go(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n_peers; i++) {
        if (!sim->peers[i].is_gone && sim->peers[i].gone_s <= sim->now_s) {
            sim->peers[i].is_gone = true;
            fetch_peer_gone(sim->fetch, to_ns(sim->now_s), i);
        }
    }
}

static enum fetch_status sim_run(struct sim *sim, struct error *err)
{
    enum fetch_status status;
    assert_int_equal(
        fetch_new(&sim->manifest, &sim->wanted, &sim->settings, to_ns(0), &sim->fetch, err), 0);
    for (uint32_t i = 0; i < sim->n_peers; i++) {
        struct sim_peer *peer = &sim->peers[i];
        struct topology_link link = {.up = true};
        uint32_t index;
        if (peer->is_known) {
            link.latency_ns = (struct reading){floor(peer->latency_s * 1e9), true};
            link.bandwidth_bytes_per_s = (struct reading){floor(peer->bytes_per_s), true};
        }
        assert_int_equal(fetch_peer_add(sim->fetch, to_ns(0), &link, &peer->has, &index, err), 0);
        assert_int_equal(index, i);
    }
    for (act(sim); (status = fetch_status(sim->fetch, err)) == FETCH_RUNNING; act(sim)) {
        struct mail *mail = first_mail(sim);
        double wake_s = (double)fetch_wake_ns(sim->fetch, to_ns(sim->now_s)) / 1e9;
        assert_true(mail || wake_s < 1e9); /* else nothing would ever happen again */
        assert_true(++sim->n_steps < 1000000 && sim->now_s < 100000);
        bool is_mail = mail && mail->at_s <= wake_s;
        double next_s = is_mail ? mail->at_s : wake_s;
        sim->now_s = next_s > sim->now_s ? next_s : sim->now_s + 1e-9;
        let_go(sim);
        if (is_mail)
            deliver(sim, mail);
    }
    return status;
}

static void expect_done(struct sim *sim)
{
    struct error err = {0};
    if (sim_run(sim, &err) != FETCH_DONE)
        fail_msg("seed %llu: %s", (unsigned long long)sim->seed, err.text);
    struct fetch_progress progress = fetch_progress(sim->fetch);
    assert_int_equal(progress.n_verified, part_set_count(&sim->wanted));
    assert_int_equal(progress.verified_bytes, progress.wanted_bytes);
    for (uint32_t i = 0; i < sim->manifest.n_parts; i++)
        assert_int_equal(sim->is_good[i], part_set_has(&sim->wanted, i));
}

/* ---- plain cases ---- */

static const uint64_t MODEL[] = {3000000, 64000000, 20000,     31000000, 20000,
                                 1,       CHUNK,    CHUNK + 1, 45000000};
enum { MODEL_PARTS = 9 };

static double model_bytes(void)
{
    double sum = 0;
    for (int i = 0; i < MODEL_PARTS; i++)
        sum += (double)MODEL[i];
    return sum;
}

static struct sim *sim; /* large */

static void test_one_peer_fills_its_link(void **state)
{
    (void)state;
    const double latencies[] = {0.00025, 0.002, 0.1};
    for (int i = 0; i < 3; i++) {
        for (int known = 0; known < 2; known++) {
            sim_init(sim, 1, MODEL, MODEL_PARTS);
            sim_peer(sim, 125e6, latencies[i])->is_known = known;
            expect_done(sim);
            double ideal_s = model_bytes() / 125e6 + 2 * latencies[i];
            if (known || i < 2)
                assert_true(sim->now_s < ideal_s / 0.85 + 0.1 * latencies[i] * 10 + 0.1);
            assert_int_equal(sim->written, (uint64_t)model_bytes());
            assert_int_equal(sim->asked, sim->written);
            sim_deinit(sim);
        }
    }
}

static void test_several_peers_share_the_work(void **state)
{
    (void)state;
    sim_init(sim, 2, MODEL, MODEL_PARTS);
    for (int i = 0; i < 4; i++)
        sim_peer(sim, 50e6, 0.001)->is_known = true;
    expect_done(sim);
    assert_true(sim->now_s < 1.15 * model_bytes() / 200e6 + 0.1);
    for (int i = 0; i < 4; i++)
        assert_true((double)sim->peers[i].sent_bytes > 0.18 * model_bytes());
    sim_deinit(sim);
}

static void test_the_nearest_has_most_to_do(void **state)
{
    (void)state;
    sim_init(sim, 3, MODEL, MODEL_PARTS);
    sim_peer(sim, 5e6, 0.02)->is_known = true;
    sim_peer(sim, 500e6, 0.0002)->is_known = true;
    expect_done(sim);
    assert_true((double)sim->peers[1].sent_bytes > 0.9 * model_bytes());
    assert_true(sim->now_s <
                1.3 * model_bytes() / 500e6 + 0.1); /* nobody waits for the slow one at the end */
    sim_deinit(sim);
}

static void test_a_late_chunk_is_asked_for_twice(void **state)
{
    (void)state;
    sim_init(sim, 4, MODEL, MODEL_PARTS);
    struct sim_peer *stuck = sim_peer(sim, 100e6, 0.0002);
    stuck->is_known = sim_peer(sim, 100e6, 0.0003)->is_known = true;
    stuck->silent_from_s = 0.5;
    expect_done(sim);
    assert_true(sim->now_s <
                model_bytes() / 100e6 + 0.3); /* long before its answers time out, 2 s */
    assert_true(fetch_progress(sim->fetch).received_bytes == (uint64_t)model_bytes());
    sim_deinit(sim);
}

static void test_only_what_is_wanted_and_only_of_those_who_have_it(void **state)
{
    (void)state;
    sim_init(sim, 5, MODEL, MODEL_PARTS);
    struct sim_peer *a = sim_peer(sim, 100e6, 0.001), *b = sim_peer(sim, 10e6, 0.001);
    part_set_remove(&a->has, 3); /* check_ask() watches */
    part_set_remove(&b->has, 1);
    part_set_remove(&sim->wanted, 8);
    expect_done(sim);
    assert_int_equal(sim->written, (uint64_t)model_bytes() - MODEL[8]);
    sim_deinit(sim);
}

static void test_what_is_under_way_is_bounded(void **state)
{
    (void)state;
    sim_init(sim, 6, MODEL, MODEL_PARTS);
    sim->settings.bytes_in_flight = 5 * CHUNK;
    for (int i = 0; i < 6; i++)
        sim_peer(sim, 1e9, 0.2)->is_known = true;
    expect_done(sim);
    assert_true(sim->owed_most <= 5 * CHUNK && sim->owed_most > 3 * CHUNK);
    sim_deinit(sim);
}

/* ---- bad days ---- */

static void test_a_liar_is_found_and_the_honest_are_not_blamed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        sim_init(sim, seed, MODEL, MODEL_PARTS);
        sim_peer(sim, 50e6, 0.001);
        sim_peer(sim, 60e6, 0.001)->lies_permille = 1000;
        sim_peer(sim, 40e6, 0.001);
        expect_done(sim);
        assert_true(fetch_peer_notes(sim->fetch, 1).has_lied);
        assert_false(fetch_peer_notes(sim->fetch, 0).has_lied ||
                     fetch_peer_notes(sim->fetch, 2).has_lied);
        sim_deinit(sim);
    }
}

static void expect_failed(enum error_code want, const char *words, double by_s)
{
    struct error err = {0};
    assert_int_equal(sim_run(sim, &err), FETCH_FAILED);
    assert_int_equal(err.code, want);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    assert_true(sim->now_s < by_s);
    sim_deinit(sim);
}

static void test_what_nobody_has_is_a_clear_error(void **state)
{
    (void)state;
    sim_init(sim, 7, MODEL, MODEL_PARTS);
    struct sim_peer *peer = sim_peer(sim, 50e6, 0.001);
    part_set_remove(&peer->has, 4);
    expect_failed(ERROR_NOT_FOUND, "tensor.4: no node has it (of 1 nodes asked, 0 sent wrong bytes",
                  15);

    sim_init(sim, 8, MODEL, MODEL_PARTS);
    sim_peer(sim, 50e6, 0.001)->lies_permille = 1000;
    expect_failed(ERROR_NOT_FOUND, "1 sent wrong bytes", 20);

    sim_init(sim, 9, MODEL, MODEL_PARTS);
    expect_failed(ERROR_NOT_FOUND, "the model's header: no node has it (of 0", 11);

    sim_init(sim, 10, MODEL, MODEL_PARTS);
    sim_peer(sim, 50e6, 0.001)->silent_from_s = 0;
    sim_peer(sim, 50e6, 0.001)->gone_s = 1;
    sim->peers[1].silent_from_s = 0;
    sim->settings.patience_ns = 5000000000u;
    expect_failed(ERROR_IO, "nothing arrived for 5 s", 8);
}

static void test_a_wrong_length_is_a_lie(void **state)
{
    (void)state;
    struct part_set wanted;
    struct fetch_action ask, where;
    struct topology_link link = {.up = true};
    uint32_t peer;
    sim_init(sim, 11, MODEL, MODEL_PARTS);
    part_set_init(&wanted, MODEL_PARTS, NULL);
    part_set_add_all(&wanted);
    assert_int_equal(fetch_new(&sim->manifest, &wanted, NULL, 0, &sim->fetch, NULL), 0);
    assert_int_equal(fetch_peer_add(sim->fetch, 0, &link, &wanted, &peer, NULL), 0);
    ask = fetch_next(sim->fetch, 0);
    assert_true(ask.kind == FETCH_ASK && ask.size == MODEL[0]);
    assert_int_equal(fetch_chunk(sim->fetch, 1, peer, ask.id + 7, ask.size, &where), FETCH_IGNORE);
    assert_int_equal(fetch_chunk(sim->fetch, 1, peer, ask.id, ask.size - 1, &where), FETCH_BAD);
    assert_int_equal(fetch_chunk(sim->fetch, 1, peer, ask.id, ask.size, &where), FETCH_IGNORE);
    assert_true(fetch_peer_notes(sim->fetch, peer).is_out);
    while ((ask = fetch_next(sim->fetch, 2)).kind == FETCH_CANCEL)
        ;
    assert_int_equal(ask.kind, FETCH_NOTHING);
    fetch_peer_gone(sim->fetch, 3, peer);
    fetch_peer_back(sim->fetch, 4, peer, &link); /* a liar stays out */
    assert_int_equal(fetch_next(sim->fetch, 5).kind, FETCH_NOTHING);
    for (uint32_t i = 1; i < LIMIT_FETCH_PEERS; i++)
        assert_int_equal(fetch_peer_add(sim->fetch, 0, &link, &wanted, &peer, NULL), 0);
    assert_int_equal(fetch_peer_add(sim->fetch, 0, &link, &wanted, &peer, NULL), ERROR_BUSY);
    part_set_deinit(&wanted);
    sim_deinit(sim);
}

static void test_running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    sim_init(sim, 12, MODEL, MODEL_PARTS);
    for (unsigned nth = 1; nth <= 3; nth++) {
        mem_fail_nth(nth);
        assert_int_equal(fetch_new(&sim->manifest, &sim->wanted, NULL, 0, &sim->fetch, NULL),
                         ERROR_NO_MEMORY);
        assert_null(sim->fetch);
        mem_fail_nth(0);
    }
    sim_deinit(sim);
}

/* ---- any days ---- */

static struct sim_peer *draw_peer(void)
{
    static const double rates[] = {1e6, 12e6, 60e6, 120e6, 1e9},
                        latencies[] = {0.0001, 0.001, 0.01, 0.1};
    struct sim_peer *peer = sim_peer(sim, rates[draw(sim, 5)], latencies[draw(sim, 4)]);
    peer->is_known = draw(sim, 2);
    if (draw(sim, 3) == 0)
        peer->lies_permille = (uint32_t)draw(sim, 1001);
    if (draw(sim, 4) == 0)
        peer->gone_s = (double)draw(sim, 5000) / 1000;
    if (draw(sim, 4) == 0) {
        peer->silent_from_s = (double)draw(sim, 3000) / 1000;
        peer->silent_to_s = draw(sim, 2) ? peer->silent_from_s + (double)draw(sim, 30) : NEVER;
    }
    if (draw(sim, 4) == 0)
        peer->refuses_permille = (uint32_t)draw(sim, 900);
    if (draw(sim, 5) == 0)
        peer->lacks_permille = (uint32_t)draw(sim, 300);
    for (uint32_t i = 0; i < sim->manifest.n_parts; i++) {
        if (draw(sim, 4) == 0)
            part_set_remove(&peer->has, i);
    }
    return peer;
}

static bool is_saint(const struct sim_peer *peer)
{
    return !peer->lies_permille && !peer->refuses_permille && !peer->lacks_permille &&
           peer->gone_s == NEVER && peer->silent_from_s == NEVER;
}

/* Where every part has a peer that does as it should, it is fetched, whatever the others do; else
 * it ends, one way or the other, and nobody honest is called a liar. */
static void test_random_peers(void **state)
{
    (void)state;
    uint32_t n_done = 0, n_failed = 0, n_possible = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        uint64_t sizes[PARTS_MAX];
        uint32_t n = 2 + (uint32_t)(random_at(seed, 900) % 20);
        for (uint32_t i = 0; i < n; i++)
            sizes[i] =
                1 + random_at(seed, 1000 + i) % (random_at(seed, 2000 + i) % 3 ? 9000000 : 40000);
        sim_init(sim, seed, sizes, n);
        uint32_t n_peers = 1 + (uint32_t)draw(sim, PEERS_MAX - 1);
        bool possible = true, honest[PEERS_MAX] = {0};
        for (uint32_t i = 0; i < n_peers; i++)
            honest[i] = !draw_peer()->lies_permille;
        for (uint32_t i = 0; i < n; i++) {
            bool has = false;
            for (uint32_t p = 0; p < n_peers; p++)
                has = has || (is_saint(&sim->peers[p]) && part_set_has(&sim->peers[p].has, i));
            possible = possible && has;
        }
        n_possible += possible;
        struct error err = {0};
        if (possible) {
            expect_done(sim);
            n_done++;
        } else if (sim_run(sim, &err) == FETCH_DONE) {
            n_done++;
        } else {
            assert_true(err.code && err.text[0]);
            n_failed++;
        }
        for (uint32_t p = 0; p < n_peers; p++)
            assert_false(honest[p] && fetch_peer_notes(sim->fetch, p).has_lied);
        sim_deinit(sim);
    }
    assert_true(n_possible > 40 && n_done > n_possible && n_failed > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_peer_fills_its_link),
        cmocka_unit_test(test_several_peers_share_the_work),
        cmocka_unit_test(test_the_nearest_has_most_to_do),
        cmocka_unit_test(test_a_late_chunk_is_asked_for_twice),
        cmocka_unit_test(test_only_what_is_wanted_and_only_of_those_who_have_it),
        cmocka_unit_test(test_what_is_under_way_is_bounded),
        cmocka_unit_test(test_a_liar_is_found_and_the_honest_are_not_blamed),
        cmocka_unit_test(test_what_nobody_has_is_a_clear_error),
        cmocka_unit_test(test_a_wrong_length_is_a_lie),
        cmocka_unit_test(test_running_out_of_memory_is_an_error),
        cmocka_unit_test(test_random_peers),
    };
    sim = calloc(1, sizeof *sim);
    int failed = cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
    free(sim);
    return failed;
}
