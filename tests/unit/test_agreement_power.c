/* The power goes in the whole house: three nodes lose it at once, in the middle of writing, again
 * and again. What the cluster had agreed to is there when they are back, on all of them, and the
 * three still agree.
 *
 * All stores are on one power_disk.h; libuv's pool has one thread, so that one write is made at a
 * time.
 *
 * MEDLEY_SEEDS=FROM-TO: these seeds in place of the first one. */
#include "agreement_world.h"
#include "power_disk.h"
#include "power_vfs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 3, LIVES = 4, KEYS_MAX = 400 };

static struct agreement_world *w;
static struct error err;
static uint64_t seed_under_way;

/* What was proposed: a key's value is its own text. */
static struct {
    bool agreed[KEYS_MAX];
    uint32_t n, n_agreed, n_losses;
} said;

static void key_text(uint32_t n, char out[16])
{
    snprintf(out, 16, "key%u", n);
}

/* False: the cluster did not agree, which it may yet. */
static bool say(int node)
{
    char key[16];
    struct agreement_wish wish;
    assert_true(said.n < KEYS_MAX);
    key_text(said.n, key);
    agreement_world_set(w, node, key, key, &wish);
    assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 10000));
    said.agreed[said.n++] = !wish.code;
    said.n_agreed += !wish.code;
    return !wish.code;
}

static bool has_all(void *arg)
{
    const int node = *(const int *)arg;
    char key[16];
    for (uint32_t i = 0; i < said.n; i++) {
        key_text(i, key);
        const char *value = agreement_world_setting(w, node, key);
        if (said.agreed[i] && (!value || strcmp(value, key) != 0))
            return false;
    }
    return true;
}

static bool open_all(void)
{
    bool good = true;
    for (int i = 0; i < NODES; i++) {
        if (!agreement_world_open(w, i, &err))
            continue;
        good = false;
        if (!power_is_off())
            fail_msg("seed %llu: node %d: %s", (unsigned long long)seed_under_way, i, err.text);
    }
    return good;
}

static void close_all(void)
{
    for (int i = 0; i < NODES; i++)
        agreement_world_close(w, i);
}

/* Up to the loss of power, which is somewhere in the opening or in what is written. */
static void live(void)
{
    power_lose_at(1 + power_draw(power_draw(4) ? 400 : 60));
    if (open_all())
        while (say((int)power_draw(NODES))) {
        }
    close_all();
    said.n_losses += power_is_off();
    power_on();
}

static void all_is_there(void)
{
    w->options.proposal_ms = 8000;
    assert_true(open_all());
    if (!say(0))
        fail_msg("seed %llu: the nodes do not come together again",
                 (unsigned long long)seed_under_way);
    for (int i = 0; i < NODES; i++) {
        if (!agreement_world_run(w, has_all, &i, 5000))
            fail_msg("seed %llu: node %d lacks what was agreed to",
                     (unsigned long long)seed_under_way, i);
        for (int k = 0; k < i; k++)
            assert_true(agreement_member(w->nodes[i].agreement) !=
                        agreement_member(w->nodes[k].agreement));
    }
    close_all();
    w->options.proposal_ms = 600;
}

static void one_house(uint64_t seed)
{
    seed_under_way = seed;
    memset(&said, 0, sizeof said);
    power_reset(seed);
    power_tear_sectors(seed % 2 ? 4096 : 512);
    w = agreement_world_init();
    for (int i = 0; i < NODES; i++)
        snprintf(w->nodes[i].path, sizeof w->nodes[i].path, POWER_FOLDER "/%d.db", i);
    agreement_world_found(w, NODES);
    close_all();
    w->options.proposal_ms = 600;
    for (int life = 0; life < LIVES; life++) {
        live();
        if (life % 2)
            all_is_there();
    }
    agreement_world_deinit(w);
    print_message("# seed %llu: %u of %u changes were agreed to, the power went %u times\n",
                  (unsigned long long)seed, said.n_agreed, said.n, said.n_losses);
    assert_true(said.n_agreed > 0 && said.n_losses > 0);
}

static void the_whole_house(void **state)
{
    unsigned long long from = 1, to = 1;
    const char *chosen = getenv("MEDLEY_SEEDS");
    if (chosen && sscanf(chosen, "%llu-%llu", &from, &to) == 1)
        to = from;
    for (uint64_t seed = from; seed <= to; seed++)
        one_house(seed);
}

int main(void)
{
    setenv("UV_THREADPOOL_SIZE", "1", 1);
    power_vfs_register();
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_whole_house)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
