/* Without a machine, with one more; and what would make a model fit. */
#include "base/mem.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement_world.h"
#include "report/remedy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct world world;
static struct placement_options options;

static const struct placement_kv_types KV = {
    .current = {"f16", 1, 2},
    .n = 3,
    .others = {{"f16", 1, 2}, {"q8_0", 32, 34}, {"q4_0", 32, 18}}};
static const struct placement_kv_types NO_KV;

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

enum { MB = 1000 * 1000 };

/* Two machines, the second with two devices; four layers of 100 MB; hops of 5 ms + 1 KB at 1 MB/s,
 * within the second machine 1 ms + 1 KB at 1 GB/s. */
static void make_plain(void)
{
    memset(&world, 0, sizeof world);
    options = placement_options_default();
    world.problem = (struct placement_problem){
        .n_devices = 3,
        .devices = world.devices,
        .links = world.links,
        .model = {.n_types = 1,
                  .n_layers = 4,
                  .layers = world.layers,
                  .activation_bytes_per_token = 1000},
        .demand = {.context_tokens = 100, .streams = 1, .prompt_tokens = 64, .chunk_tokens = 16},
    };
    for (uint32_t i = 0; i < 4; i++) {
        world.layers[i].bytes[0] = world.layers[i].bytes_per_token[0] = 100 * MB;
        world.layers[i].flops_per_token[0] = 1e9;
    }
    for (uint32_t i = 0; i < 3; i++) {
        world.devices[i] = (struct placement_device){
            .memory_free_bytes = (i == 0 ? 900 : 250) * (uint64_t)MB, .share = 1};
        world.devices[i].decode_bytes_per_s[0] = i == 0 ? 1e9 : 2e9;
        world.devices[i].prefill_flops[0] = 1e12;
        strcpy(world.devices[i].id, i == 2 ? "gpu1" : "gpu0");
        strcpy(world.devices[i].node, i == 0 ? "slow" : "fast");
    }
    for (uint32_t i = 0; i < 9; i++)
        world.links[i] = (struct placement_link){0.005, 1e6};
    world.links[1 * 3 + 2] = world.links[2 * 3 + 1] = (struct placement_link){0.001, 1e9};
}

static struct placement_rates rate_of(const struct placement_problem *problem)
{
    struct placement_rates rates;
    assert_int_equal(placement_rate(problem, &options, &rates, NULL), ERROR_NONE);
    return rates;
}

/* ---- what if -------------------------------------------------------------------------- */

static void without_each(void **state)
{
    struct placement_rates rates;
    make_plain();
    near(rate_of(&world.problem).decode_tokens_per_s, 1 / (0.2 + 0.001 + 1e-6 + 0.001 + 4e-9));
    assert_int_equal(placement_without_node(&world.problem, "fast", &options, &rates, NULL),
                     ERROR_NONE);
    assert_true(rates.answer == PLACEMENT_POSSIBLE && rates.proved);
    near(rates.decode_tokens_per_s, 1 / 0.4);
    assert_int_equal(placement_without_device(&world.problem, 2, &options, &rates, NULL),
                     ERROR_NONE);
    near(rates.decode_tokens_per_s, 1 / (0.1 + 0.2 + 0.006 + 0.005 + 4e-6));
    assert_true(rates.prefill_tokens_per_s > 0);
    world.devices[0].memory_free_bytes = 100;
    assert_int_equal(placement_without_device(&world.problem, 2, &options, &rates, NULL),
                     ERROR_NONE);
    assert_true(rates.answer == PLACEMENT_IMPOSSIBLE && rates.decode_tokens_per_s == 0);
    assert_int_equal(placement_without_node(&world.problem, "nobody", &options, &rates, NULL),
                     ERROR_NONE);
    assert_int_equal(rates.answer, PLACEMENT_POSSIBLE);
}

static void with_one_more(void **state)
{
    struct placement_rates rates;
    bool assumed;
    make_plain();
    /* A second slow one in a machine of its own changes nothing; a fast one with all the memory
     * does. */
    struct placement_extra extra = placement_extra_copy(&world.problem, 0, true);
    assert_string_equal(extra.device.node, "slow+");
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, NULL),
                     ERROR_NONE);
    near(rates.decode_tokens_per_s, rate_of(&world.problem).decode_tokens_per_s);
    extra = placement_extra_copy(&world.problem, 1, false);
    extra.device.memory_free_bytes = 900 * (uint64_t)MB;
    struct placement_link link = placement_extra_beside(&world.problem, &extra, &assumed);
    assert_true(!assumed && link.latency_s == 0.001 && link.bytes_per_s == 1e9);
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, NULL),
                     ERROR_NONE);
    near(rates.decode_tokens_per_s, 1 / 0.2);
    assert_true(rates.placement.n_stages == 1 && rates.placement.stages[0].device == 3);
    /* What it is linked by: the given, its machine's, another machine's, and what is assumed. */
    extra.beside = (struct placement_link){1, 2};
    assert_true(placement_extra_beside(&world.problem, &extra, &assumed).latency_s == 1 &&
                !assumed);
    extra = placement_extra_copy(&world.problem, 0, false);
    assert_true(placement_extra_beside(&world.problem, &extra, &assumed).latency_s == 0.001 &&
                !assumed);
    extra = placement_extra_copy(&world.problem, 0, true);
    assert_true(placement_extra_beside(&world.problem, &extra, &assumed).latency_s == 0.005 &&
                !assumed);
    world.problem.n_devices = 1;
    assert_true(placement_extra_beside(&world.problem, &extra, &assumed).bytes_per_s == 117e6 &&
                assumed);
    extra = placement_extra_copy(&world.problem, 0, false);
    assert_true(placement_extra_beside(&world.problem, &extra, &assumed).bytes_per_s == 10e9 &&
                assumed);
}

static void a_wrong_extra_is_refused(void **state)
{
    struct placement_rates rates;
    struct error err;
    make_plain();
    struct placement_extra extra = placement_extra_copy(&world.problem, 1, false);
    extra.like = 3;
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "like device 3"));
    extra.like = 1;
    strcpy(extra.device.id, "gpu1");
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "already"));
    memset(extra.device.id, 'x', sizeof extra.device.id);
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, &err),
                     ERROR_INVALID);
    extra = placement_extra_copy(&world.problem, 1, false);
    extra.device.launch_s = NAN;
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "launch_s"));
    extra.device.launch_s = 0;
    extra.beside = (struct placement_link){-1, 1};
    assert_int_equal(placement_with_device(&world.problem, &extra, &options, &rates, &err),
                     ERROR_INVALID);
}

/* Fewer devices are never better, more never worse; on random homes. */
static void answers_are_monotone(void **state)
{
    uint32_t n = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        world_make(&world, seed,
                   (struct world_shape){
                       .n_devices = 5, .n_layers = 24, .tightness = 2, .mixed_types = seed % 2});
        options = placement_options_default();
        const struct placement_rates now = rate_of(&world.problem);
        for (uint32_t d = 0; d < 5; d++) {
            const struct placement_extra extra =
                placement_extra_copy(&world.problem, d, seed % 3 == 0);
            struct placement_rates less, more;
            assert_int_equal(placement_without_device(&world.problem, d, &options, &less, NULL),
                             ERROR_NONE);
            assert_int_equal(placement_with_device(&world.problem, &extra, &options, &more, NULL),
                             ERROR_NONE);
            assert_true(less.proved && more.proved);
            assert_true(less.decode_tokens_per_s <= now.decode_tokens_per_s * (1 + 1e-8));
            assert_true(more.decode_tokens_per_s >= now.decode_tokens_per_s * (1 - 1e-8));
            n += more.decode_tokens_per_s > now.decode_tokens_per_s * 1.01;
        }
    }
    assert_true(n > 30);
}

/* ---- remedies ------------------------------------------------------------------------- */

static struct placement_remedies remedies_of(const struct placement_kv_types *types)
{
    struct placement_remedies out;
    struct error err;
    if (placement_remedies(&world.problem, types, &options, &out, &err))
        fail_msg("%s", err.text);
    return out;
}

static const struct placement_remedy *remedy_of(const struct placement_remedies *remedies,
                                                enum placement_remedy_kind kind)
{
    for (uint32_t i = 0; i < remedies->n; i++) {
        if (remedies->list[i].kind == kind)
            return &remedies->list[i];
    }
    return NULL;
}

static void nothing_is_wrong(void **state)
{
    make_plain();
    const struct placement_remedies remedies = remedies_of(&KV);
    assert_true(remedies.fits && remedies.n == 0 && remedies.missing_bytes == 0);
}

/* Three devices of 210 MB hold two layers each while those are at most 105 MB: 5 MB of KV. With 8
 * layers of 100 MB two are left over. */
static void memory_by_hand(void **state)
{
    make_plain();
    world.problem.model.n_layers = 8;
    for (uint32_t i = 0; i < 8; i++) {
        world.layers[i] = world.layers[0];
        world.layers[i].kv_bytes_per_token = 1000;
    }
    for (uint32_t d = 0; d < 3; d++)
        world.devices[d].memory_free_bytes = 210 * (uint64_t)MB;
    struct placement_remedies remedies = remedies_of(&KV);
    /* No context is short enough: 6 layers fit at most. On one device four layers of 100.1 MB must
     * lie: 190.4 MB more, which is 181.6 MiB. A new one must hold two. */
    assert_false(remedies.fits);
    assert_int_equal(remedies.needed_bytes, 8 * 100100000ull);
    assert_int_equal(remedies.there_bytes, 630 * (uint64_t)MB);
    assert_int_equal(remedies.n, 2);
    assert_int_equal(remedies.missing_bytes, 182ull << 20);
    assert_true(remedies.list[0].kind == PLACEMENT_REMEDY_FREE_MEMORY && remedies.list[0].least);
    assert_int_equal(remedies.list[0].bytes, 182ull << 20);
    assert_true(remedies.list[1].kind == PLACEMENT_REMEDY_ADD_DEVICE && remedies.list[1].least);
    assert_int_equal(remedies.list[1].bytes, 191ull << 20);
    assert_int_equal(remedies.list[1].rates.placement.n_stages, 4);
    struct buffer text = {0};
    placement_remedies_text(&world.problem, &KV, &remedies, &text);
    assert_non_null(strstr(text.data, "missing 182.0 MiB under the best packing"));
    assert_non_null(strstr(text.data, "182.0 MiB more memory free on gpu0 of slow: "));
    assert_non_null(strstr(text.data, "one more device with 191.0 MiB free, linked as "));
    buffer_deinit(&text);
}

/* Six layers, two for each device while their KV cache is at most 5 MB: 5000 bytes a token, so 1000
 * tokens in all. */
static void make_tight(uint32_t context, uint32_t streams)
{
    make_plain();
    world.problem.model.n_layers = 6;
    for (uint32_t i = 0; i < 6; i++) {
        world.layers[i] = world.layers[0];
        world.layers[i].kv_bytes_per_token = 5000;
    }
    for (uint32_t d = 0; d < 3; d++)
        world.devices[d].memory_free_bytes = 210 * (uint64_t)MB;
    world.problem.demand.context_tokens = context;
    world.problem.demand.streams = streams;
}

static void context_and_streams_by_hand(void **state)
{
    make_tight(4096, 1); /* 1000 tokens in steps of 256: 768; q8_0 1882, q4_0 3555 */
    struct placement_remedies remedies = remedies_of(&KV);
    const struct placement_remedy *context = remedy_of(&remedies, PLACEMENT_REMEDY_CONTEXT);
    assert_true(context && context->least && context->context_tokens == 768 &&
                context->streams == 1);
    assert_null(remedy_of(&remedies, PLACEMENT_REMEDY_KV_TYPE));
    assert_null(remedy_of(&remedies, PLACEMENT_REMEDY_STREAMS));
    assert_null(remedy_of(&remedies, PLACEMENT_REMEDY_COMBINED));
    world.problem.demand.context_tokens = 3500;
    remedies = remedies_of(&KV);
    const struct placement_remedy *type = remedy_of(&remedies, PLACEMENT_REMEDY_KV_TYPE);
    assert_true(type && type->least);
    assert_string_equal(type->kv_type, "q4_0");
    world.problem.demand.context_tokens = 1880;
    remedies = remedies_of(&KV);
    assert_string_equal(remedies.list[0].kv_type, "q8_0");
    assert_null(remedy_of(&(struct placement_remedies){0}, PLACEMENT_REMEDY_KV_TYPE));
    /* 40 MB of buffers, of which a token takes 10000: 512 tokens have 4.2 MB of them and 5.1 MB of
     * KV cache. */
    make_tight(4096, 1);
    world.problem.model.compute_bytes = 40 * (uint64_t)MB;
    remedies = remedies_of(&NO_KV);
    assert_null(remedy_of(&remedies, PLACEMENT_REMEDY_CONTEXT));
    world.problem.model.compute_bytes_per_context = 10000;
    remedies = remedies_of(&NO_KV);
    context = remedy_of(&remedies, PLACEMENT_REMEDY_CONTEXT);
    assert_true(context && context->least && context->context_tokens == 512);
    make_tight(300, 8); /* 2400 tokens; three streams are 900 */
    remedies = remedies_of(&NO_KV);
    const struct placement_remedy *streams = remedy_of(&remedies, PLACEMENT_REMEDY_STREAMS);
    assert_true(streams && streams->least && streams->streams == 3 &&
                streams->context_tokens == 300);
    context = remedy_of(&remedies, PLACEMENT_REMEDY_CONTEXT);
    assert_true(context && context->context_tokens == 64 && context->streams == 8);
    struct buffer text = {0};
    placement_remedies_text(&world.problem, &NO_KV, &remedies, &text);
    assert_non_null(strstr(text.data, "  3 streams instead of 8: "));
    assert_non_null(strstr(text.data, "  a context of 64 tokens instead of 300: "));
    buffer_deinit(&text);
}

static void all_of_it_together(void **state)
{
    make_tight(
        30000,
        200); /* even 1024 tokens of 200 streams are too much, and one stream of 30000 in Q4_0 is */
    struct placement_remedies remedies = remedies_of(&KV);
    const struct placement_remedy *combined = remedy_of(&remedies, PLACEMENT_REMEDY_COMBINED);
    assert_true(combined && combined->streams == 1 && combined->context_tokens == 3072 &&
                combined->least);
    assert_string_equal(combined->kv_type, "q4_0");
    struct buffer text = {0};
    placement_remedies_text(&world.problem, &KV, &remedies, &text);
    assert_non_null(strstr(
        text.data,
        "  a KV cache in q4_0 instead of f16, 1 stream instead of 200, a context of 3072 tokens"));
    buffer_deinit(&text);
    make_tight(3500, 200); /* here the context may stay */
    remedies = remedies_of(&KV);
    combined = remedy_of(&remedies, PLACEMENT_REMEDY_COMBINED);
    assert_true(combined && combined->context_tokens == 3500 && combined->streams == 1);
}

/* Neither memory nor context is what is missing. */
static void types_and_links(void **state)
{
    make_plain();
    for (uint32_t d = 0; d < 3; d++)
        world.devices[d].decode_bytes_per_s[0] = 0;
    struct placement_remedies remedies = remedies_of(&KV);
    assert_non_null(strstr(remedies.why, "supports the types"));
    assert_int_equal(remedies.missing_bytes, 0);
    assert_int_equal(remedies.n, 1);
    assert_int_equal(remedies.list[0].kind, PLACEMENT_REMEDY_ADD_DEVICE);
    make_plain();
    world.devices[0].memory_free_bytes = 250 * (uint64_t)MB;
    memset(world.links, 0, sizeof world.links);
    remedies = remedies_of(&KV); /* one must hold everything */
    assert_int_equal(remedies.missing_bytes, 144ull << 20);
}

static void wrong_types_are_refused(void **state)
{
    struct placement_remedies out;
    struct placement_kv_types types = KV;
    struct error err;
    make_tight(4096, 1);
    types.others[1].elements_per_block = 0;
    assert_int_equal(placement_remedies(&world.problem, &types, &options, &out, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "q8_0"));
    types = KV;
    types.n = PLACEMENT_KV_TYPES_MAX + 1;
    assert_int_equal(placement_remedies(&world.problem, &types, &options, &out, &err),
                     ERROR_INVALID);
    types = KV;
    memset(types.current.name, 'x', sizeof types.current.name);
    assert_int_equal(placement_remedies(&world.problem, &types, &options, &out, &err),
                     ERROR_INVALID);
    world.problem.demand.streams = 0;
    assert_int_equal(placement_remedies(&world.problem, &KV, &options, &out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "streams"));
}

/* What a remedy says, applied by hand: the check accepts its placement. One unit less is refused by
 * brute force. */
static void apply(const struct placement_remedy *remedy, struct placement_problem *problem)
{
    problem->demand.streams = remedy->streams;
    problem->demand.context_tokens = remedy->context_tokens;
    for (uint32_t type = 0; type < KV.n; type++) {
        for (uint32_t i = 0;
             i < problem->model.n_layers && !strcmp(KV.others[type].name, remedy->kv_type); i++)
            world.layers[i].kv_bytes_per_token =
                (world.layers[i].kv_bytes_per_token / 2 * KV.others[type].bytes_per_block +
                 KV.others[type].elements_per_block - 1) /
                KV.others[type].elements_per_block;
    }
    if (remedy->kind == PLACEMENT_REMEDY_FREE_MEMORY)
        world.devices[remedy->device].memory_free_bytes += remedy->bytes;
}

static void remedies_are_true(void **state)
{
    uint32_t seen[PLACEMENT_REMEDY_KINDS] = {0}, least = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        const struct world_shape shape = {.n_devices = 3,
                                          .n_layers = 5,
                                          .tightness = 0.7 + 0.08 * (double)(seed % 7),
                                          .mixed_types = seed % 2,
                                          .links_missing = seed % 5 ? 0 : 0.2};
        world_make(&world, seed, shape);
        options = placement_options_default();
        for (uint32_t i = 0; i < 5; i++)
            world.layers[i].kv_bytes_per_token = seed % 3 ? 40000 : 4096;
        world.problem.demand.streams = seed % 4 ? 2 : 1;
        const struct placement_remedies remedies = remedies_of(&KV);
        const struct world before = world;
        assert_int_equal(remedies.fits, world_brute_force(&world.problem) < INFINITY);
        for (uint32_t i = 0; i < remedies.n; i++) {
            const struct placement_remedy *remedy = &remedies.list[i];
            seen[remedy->kind]++;
            if (remedy->kind == PLACEMENT_REMEDY_ADD_DEVICE)
                continue;
            apply(remedy, &world.problem);
            assert_int_equal(placement_check(&world.problem, &remedy->rates.placement, NULL),
                             ERROR_NONE);
            if (remedy->kind == PLACEMENT_REMEDY_FREE_MEMORY)
                world.devices[remedy->device].memory_free_bytes -= PLACEMENT_REMEDY_UNIT;
            if (remedy->kind == PLACEMENT_REMEDY_STREAMS)
                world.problem.demand.streams++;
            if (remedy->kind == PLACEMENT_REMEDY_CONTEXT)
                world.problem.demand.context_tokens +=
                    placement_context_step(before.problem.demand.context_tokens);
            if (remedy->least && remedy->kind != PLACEMENT_REMEDY_KV_TYPE &&
                remedy->kind != PLACEMENT_REMEDY_COMBINED) {
                assert_true(world_brute_force(&world.problem) == INFINITY);
                least++;
            }
            world = before;
        }
    }
    for (int kind = 0; kind < PLACEMENT_REMEDY_KINDS; kind++) {
        if (seen[kind] < (kind == PLACEMENT_REMEDY_COMBINED ? 1 : 5))
            fail_msg("%s: %u times only", placement_remedy_name((enum placement_remedy_kind)kind),
                     seen[kind]);
    }
    assert_true(least > 100);
}

static void memory_that_runs_out(void **state)
{
    uint32_t n = 0;
    make_tight(4096, 2);
    for (enum error_code code = ERROR_NO_MEMORY; code; n++) {
        struct placement_remedies out;
        struct error err;
        mem_fail_nth(n + 1);
        code = placement_remedies(&world.problem, &KV, &options, &out, &err);
        if (code)
            assert_int_equal(code, ERROR_NO_MEMORY);
    }
    mem_fail_nth(0);
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_each),
        cmocka_unit_test(with_one_more),
        cmocka_unit_test(a_wrong_extra_is_refused),
        cmocka_unit_test(answers_are_monotone),
        cmocka_unit_test(nothing_is_wrong),
        cmocka_unit_test(memory_by_hand),
        cmocka_unit_test(context_and_streams_by_hand),
        cmocka_unit_test(all_of_it_together),
        cmocka_unit_test(types_and_links),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(remedies_are_true),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
