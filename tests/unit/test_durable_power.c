/* Small files (base/durable_file.h) when the power goes, or a step of replacing them fails: there
 * is what was acknowledged last, or what was being written, whole.
 *
 * MEDLEY_SEEDS=FROM-TO: these seeds in place of the first ones. */
#include "power_disk.h"

#include "base/durable_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BYTES_MAX = 5000,
    STEPS = 6,
    LIFE = 32
}; /* of one replacement: create, write, sync, rename, sync the folder; and one */

static const char path[] = POWER_FOLDER "/book";
static struct error err;
static uint64_t seed_under_way;

/* One file's contents: a length, and a number that all of its bytes follow from. */
struct content {
    bool there;
    size_t size;
    uint8_t bytes[BYTES_MAX];
};

static struct content draw_content(void)
{
    struct content content = {.there = true,
                              .size = power_draw(3) ? power_draw(BYTES_MAX) : power_draw(40)};
    const uint8_t first = (uint8_t)power_draw(256);
    for (size_t i = 0; i < content.size; i++)
        content.bytes[i] = (uint8_t)(first + i * 7);
    return content;
}

static bool same(const struct content *a, const struct content *b)
{
    return a->there == b->there && a->size == b->size &&
           (!a->size || memcmp(a->bytes, b->bytes, a->size) == 0);
}

static struct content found(void)
{
    struct content content = {0};
    struct buffer bytes = {0};
    const enum error_code code = durable_read(path, BYTES_MAX, 0, &bytes, &err);
    if (code && code != ERROR_NOT_FOUND)
        fail_msg("seed %llu: %s", (unsigned long long)seed_under_way, err.text);
    content.there = !code;
    content.size = bytes.size;
    if (bytes.size)
        memcpy(content.bytes, bytes.data, bytes.size);
    buffer_deinit(&bytes);
    return content;
}

/* What may be there: [0] was acknowledged, the others were being written since. */
struct candidates {
    uint32_t n;
    struct content of[LIFE];
};

static void check(struct candidates *c, bool settles)
{
    const struct content now = found();
    uint32_t i = 0;
    while (i < c->n && !same(&now, &c->of[i]))
        i++;
    if (i == c->n)
        fail_msg("seed %llu, step %llu: neither the old nor the new is there (%zu bytes)",
                 (unsigned long long)seed_under_way, (unsigned long long)power_steps(), now.size);
    if (settles) {
        c->of[0] = now;
        c->n = 1;
    }
}

/* Replaces it several times, with one failure and then the loss of power somewhere. */
static void one_life(struct candidates *c)
{
    if (power_draw(2))
        power_fail_at(1 + power_draw(STEPS * 2), power_draw(2) ? ENOSPC : EIO);
    power_lose_at(1 + power_draw(STEPS * 4));
    while (!power_is_off()) {
        assert_true(c->n < LIFE);
        struct content *next = &c->of[c->n++];
        *next = draw_content();
        if (durable_replace(path, next->bytes, next->size, &err) == ERROR_NONE) {
            c->of[0] = *next;
            c->n = 1;
        } else if (!power_is_off() && !power_failed()) {
            fail_msg("seed %llu: %s", (unsigned long long)seed_under_way, err.text);
        }
        if (!power_is_off())
            check(c, false);
    }
    power_on();
    check(c, true);
}

static void old_or_new(void **unused)
{
    unsigned long long from = 1, to = 2000;
    const char *chosen = getenv("MEDLEY_SEEDS");
    if (chosen && sscanf(chosen, "%llu-%llu", &from, &to) == 1)
        to = from;
    for (uint64_t seed = from; seed <= to; seed++) {
        static struct candidates c;
        seed_under_way = seed;
        power_reset(seed);
        c = (struct candidates){.n = 1};
        for (int life = 0; life < 8; life++)
            one_life(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_or_new)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
