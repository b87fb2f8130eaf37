/* Which device would stream a model that none holds, and how fast. */
#include "placement/cost.h"
#include "plan/plan_stream.h"
#include "plan/plan_stream_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 32, MIB = 1 << 20 };

static struct placement_layer layers[LAYERS];
static struct placement_device devices[2];
static struct placement_link links[4];

/* 32 layers of 100 MiB, 100 MiB at the ends; device 0 reads 10 GB/s, device 1 100 GB/s. */
static struct placement_problem pose(uint64_t memory_0, uint64_t memory_1)
{
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = (struct placement_layer){.bytes = {100 * MIB}, .bytes_per_token = {100 * MIB}};
    devices[0] = (struct placement_device){.id = "cpu",
                                           .memory_free_bytes = memory_0,
                                           .share = 1,
                                           .decode_bytes_per_s = {10e9},
                                           .kv_bytes_per_s = 10e9};
    devices[1] = (struct placement_device){.id = "gpu",
                                           .memory_free_bytes = memory_1,
                                           .share = 1,
                                           .decode_bytes_per_s = {100e9},
                                           .kv_bytes_per_s = 100e9};
    return (struct placement_problem){
        .n_devices = 2,
        .devices = devices,
        .links = links,
        .model = {.n_types = 1,
                  .type_names = {"Q4_K"},
                  .n_layers = LAYERS,
                  .layers = layers,
                  .output = {.bytes = {100 * MIB}, .bytes_per_token = {100 * MIB}},
                  .activation_bytes_per_token = 4096},
        .demand = {.goal = PLACEMENT_LATENCY, .context_tokens = 256, .streams = 1},
    };
}

static void test_the_disk_is_what_a_token_waits_for(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)1700 * MIB, 0);
    struct plan_stream stream;
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &stream));
    assert_int_equal(stream.device, 0);
    /* 16 of 32 would fit; two slots, a few pages larger than a layer, take the place of three */
    assert_int_equal(stream.n_streamed, 20);
    assert_int_equal(stream.streamed_bytes, (uint64_t)20 * 100 * MIB);
    assert_true(stream.decode_tokens_per_s > 0.999 * 1e9 / (20 * 100 * 0x1p20));
    assert_true(stream.decode_tokens_per_s < 1.001 * 1e9 / (20 * 100 * 0x1p20));
    assert_true(stream.resident_tokens_per_s > 2.5 && stream.resident_tokens_per_s < 3);
    assert_int_equal(stream.missing_bytes, (uint64_t)1600 * MIB);
}

static void test_more_memory_beats_a_faster_device(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)3000 * MIB, (uint64_t)500 * MIB);
    struct plan_stream stream;
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &stream));
    assert_int_equal(stream.device, 0);
    /* a disk that keeps up with anything: then the faster one */
    assert_true(plan_stream_choose(&problem, 0, UINT64_C(1000000000000), &stream));
    assert_int_equal(stream.device, 1);
}

static void test_the_users_limit_holds(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)8000 * MIB, 0);
    struct plan_stream stream;
    assert_true(plan_stream_choose(&problem, (uint64_t)1000 * MIB, 1000000000, &stream));
    assert_int_equal(stream.weights_max, (uint64_t)1000 * MIB);
    assert_true(stream.n_streamed >= 24);
}

static void test_too_little_for_a_window(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)150 * MIB, (uint64_t)100 * MIB);
    struct plan_stream stream;
    assert_false(plan_stream_choose(&problem, 0, 1000000000, &stream));
}

static void test_its_words(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)1700 * MIB, 0);
    struct plan_stream stream;
    struct buffer text = {0};
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &stream));
    plan_stream_text(&stream, "cpu", &text);
    assert_string_equal(text.data, "0.48 tok/s with 20 of 32 layers streamed from this disk (1.0 "
                                   "GB/s); 2.9 with 1.6 GiB more on cpu");
    buffer_deinit(&text);
}

/* ---- on several machines --------------------------------------------------------------------- */

/* Two machines, a cable between them; what each has beyond memory is its disk. */
static struct placement_problem pose_apart(uint64_t memory_0, uint64_t memory_1)
{
    struct placement_problem problem = pose(memory_0, memory_1);
    for (int i = 0; i < 4; i++)
        links[i] = (struct placement_link){.latency_s = 1e-4, .bytes_per_s = 1e9};
    memcpy(devices[0].node, "attic", sizeof "attic");
    memcpy(devices[1].node, "tower", sizeof "tower");
    return problem;
}

static bool place_apart(const struct placement_problem *problem, uint64_t disk_0, uint64_t disk_1,
                        struct plan_stream_placement *out)
{
    const struct placement_options options = placement_options_default();
    const struct plan_stream_disk disks[] = {{disk_0, 0}, {disk_1, 1}};
    return plan_stream_place(problem, disks, &options, out);
}

/* What is said of it holds: layers in order, in the memory that is there, at the disks' speed. */
static void expect_possible(const struct placement_problem *problem, const uint64_t *disks,
                            const struct plan_stream_placement *stream)
{
    double slowest_s = 0;
    uint32_t layer = 0, n_streamed = 0;
    for (uint32_t i = 0; i < stream->placement.n_stages; i++) {
        const struct placement_stage *stage = &stream->placement.stages[i];
        const struct plan_stream_stage *of = &stream->stages[i];
        const uint64_t weights = placement_shared_bytes(problem, stage, stage),
                       other = placement_stage_bytes(problem, stage) - weights;
        assert_int_equal(stage->first_layer, layer);
        assert_true(other + (of->n_streamed ? of->weights_max : weights) <=
                    placement_device_bytes(&problem->devices[stage->device]));
        assert_true(!of->n_streamed || disks[stage->device]);
        if (of->n_streamed)
            slowest_s = (double)of->streamed_bytes / (double)disks[stage->device] > slowest_s
                            ? (double)of->streamed_bytes / (double)disks[stage->device]
                            : slowest_s;
        n_streamed += of->n_streamed;
        layer += stage->n_layers;
    }
    assert_int_equal(layer, LAYERS);
    assert_int_equal(n_streamed, stream->n_streamed);
    assert_true(stream->decode_tokens_per_s <= 1.001 / slowest_s); /* one stream: no faster */
    assert_true(stream->decode_tokens_per_s < stream->resident_tokens_per_s);
}

static void test_memories_are_filled_before_a_disk_is_read(void **state)
{
    (void)state;
    const struct placement_problem problem = pose_apart((uint64_t)1300 * MIB, (uint64_t)1500 * MIB);
    const uint64_t disks[] = {1000000000, 0};
    struct plan_stream_placement stream;
    assert_true(place_apart(&problem, disks[0], disks[1], &stream));
    expect_possible(&problem, disks, &stream);
    assert_int_equal(stream.placement.n_stages, 2);
    /* 3,300 MiB of weights, 2,800 of memory; a window takes two layers' place: 8 or less */
    assert_true(stream.n_streamed >= 5 && stream.n_streamed <= 8);
    assert_false(place_apart(&problem, 0, 0, &stream)); /* no disk */
}

/* Both disks read at once, if there are streams for both. */
static void test_disks_share_what_is_streamed(void **state)
{
    (void)state;
    const struct placement_problem problem = pose_apart((uint64_t)900 * MIB, (uint64_t)900 * MIB);
    const uint64_t both[] = {500000000, 500000000}, one[] = {500000000, 0};
    struct plan_stream_placement two, alone;
    struct buffer text = {0};
    assert_true(place_apart(&problem, both[0], both[1], &two));
    assert_true(place_apart(&problem, one[0], one[1], &alone));
    expect_possible(&problem, both, &two);
    expect_possible(&problem, one, &alone);
    assert_true(two.decode_tokens_per_s >= alone.decode_tokens_per_s);
    struct placement_problem many = problem;
    many.demand.goal = PLACEMENT_THROUGHPUT, many.demand.streams = 8;
    assert_true(place_apart(&many, both[0], both[1], &two));
    assert_true(place_apart(&many, one[0], one[1], &alone));
    assert_true(two.stages[0].n_streamed && two.stages[1].n_streamed);
    assert_true(two.decode_tokens_per_s > alone.decode_tokens_per_s);
    plan_stream_place_text(&many, &two, &text);
    assert_non_null(strstr(text.data, " of 32 layers from the disk of "));
    assert_non_null(strstr(text.data, "MiB more on attic"));
    assert_non_null(strstr(text.data, "MiB more on tower"));
    buffer_deinit(&text);
}

static uint64_t weights_in_memory(const struct placement_problem *problem,
                                  const struct plan_stream_placement *stream, uint32_t i)
{
    const struct placement_stage *stage = &stream->placement.stages[i];
    return stream->stages[i].n_streamed ? stream->stages[i].weights_max
                                        : placement_shared_bytes(problem, stage, stage);
}

/* Memory would hold all of it on one device; somebody lets no stage have more than that. */
static void test_a_limit_of_each_stage(void **state)
{
    (void)state;
    struct placement_problem problem = pose_apart((uint64_t)9000 * MIB, (uint64_t)9000 * MIB);
    const uint64_t disks[] = {1000000000, 1000000000}, limits[] = {700, 1000, 1400};
    uint32_t streamed_before = LAYERS + 1;
    problem.model.compute_bytes = 20 * MIB;
    problem.model.compute_output_bytes = 500 * MIB; /* larger than what is left of a layer */
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct plan_stream_placement stream;
        problem.demand.weights_max = limits[i] * MIB;
        assert_true(place_apart(&problem, disks[0], disks[1], &stream));
        for (uint32_t k = 0; k < stream.placement.n_stages; k++)
            assert_true(weights_in_memory(&problem, &stream, k) <= limits[i] * MIB);
        assert_true(stream.n_streamed < streamed_before);
        streamed_before = stream.n_streamed;
    }
    struct plan_stream_placement none;
    problem.demand.weights_max = 150 * MIB;
    assert_false(place_apart(&problem, disks[0], disks[1], &none));
}

/* One disk, two devices: both memories are used, and each streams what it lacks. */
static void test_devices_of_one_machine_share_its_disk(void **state)
{
    (void)state;
    const struct placement_options options = placement_options_default();
    struct placement_problem problem = pose((uint64_t)1500 * MIB, (uint64_t)1000 * MIB);
    struct plan_stream alone;
    struct plan_stream_placement both;
    struct buffer text = {0};
    links[1] = links[2] = (struct placement_link){.bytes_per_s = 1e9};
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &alone));
    assert_true(plan_stream_place_here(&problem, 1000000000, &options, &both));
    assert_int_equal(both.placement.n_stages, 2);
    assert_true(both.n_streamed < alone.n_streamed);
    assert_true(both.decode_tokens_per_s > alone.decode_tokens_per_s);
    /* a token waits for all that is streamed, but for what is read while its stage computes */
    double streamed = 0;
    for (uint32_t i = 0; i < 2; i++)
        streamed += (double)both.stages[i].streamed_bytes;
    assert_true(both.decode_tokens_per_s <= 1.001 * 1e9 / streamed);
    plan_stream_here_text(&problem, &both, 1000000000, &text);
    assert_non_null(strstr(text.data, " of 32 layers streamed from this disk (1.0 GB/s): "));
    assert_non_null(strstr(text.data, "more on "));
    buffer_deinit(&text);
    problem.demand.weights_max = (uint64_t)900 * MIB; /* of each */
    assert_true(plan_stream_place_here(&problem, 1000000000, &options, &both));
    assert_int_equal(both.placement.n_stages, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(weights_in_memory(&problem, &both, i) <= (uint64_t)900 * MIB);
    assert_true(both.stages[0].n_streamed || both.stages[1].n_streamed);
}

/* ---- against all placements ------------------------------------------------------------------ */

enum { FEW_LAYERS = 20, THREE = 3 };

static struct placement_device three[THREE];
static struct placement_link between_three[THREE * THREE];

/* 20 layers of 110 MiB with their caches; two devices of one machine, and one of another. */
static struct placement_problem pose_three(const uint64_t *memory_mib, const double *rates,
                                           uint32_t n_streams)
{
    struct placement_problem problem = pose(0, 0);
    for (uint32_t i = 0; i < THREE; i++) {
        three[i] = (struct placement_device){.memory_free_bytes = memory_mib[i] * MIB,
                                             .share = 1,
                                             .decode_bytes_per_s = {rates[i]},
                                             .prefill_flops = {100 * rates[i]},
                                             .kv_bytes_per_s = rates[i]};
        snprintf(three[i].id, sizeof three[i].id, i == 1 ? "gpu0" : "cpu");
        snprintf(three[i].node, sizeof three[i].node, i == 2 ? "attic" : "tower");
    }
    for (uint32_t i = 0; i < THREE * THREE; i++) {
        const bool is_here = i / THREE < 2 && i % THREE < 2;
        between_three[i] = (struct placement_link){is_here ? 0 : 1e-5, is_here ? 1e18 : 1e9};
    }
    for (uint32_t i = 0; i < FEW_LAYERS; i++) {
        layers[i].flops_per_token[0] = 4e8;
        layers[i].kv_bytes_per_token = (40 << 10) / n_streams; /* 10 MiB of contexts */
    }
    problem.demand.streams = n_streams;
    problem.n_devices = THREE;
    problem.devices = three;
    problem.links = between_three;
    problem.model.n_layers = FEW_LAYERS;
    return problem;
}

struct every_placement { /* the fastest of all that there are, transfers left out */
    struct placement_problem problem;
    const struct plan_stream_disk *disks;
    struct placement at;
    double best_tokens_per_s;
    uint32_t n_possible;
};

/* The room for weights in the memory of a stage's device. */
static uint64_t room_of(const struct placement_problem *problem,
                        const struct placement_stage *stage)
{
    const uint64_t other =
        placement_stage_bytes(problem, stage) - placement_shared_bytes(problem, stage, stage);
    const uint64_t all = placement_device_bytes(&problem->devices[stage->device]);
    return all > other ? all - other : 0;
}

/* By the definition: a batch has passed a stage when it has computed and its disk has read; a disk
 * that serves several at once has read all of theirs. */
static void every_placement_rate(struct every_placement *e)
{
    struct placement_problem problem = e->problem;
    double reads_s[THREE] = {0}, longest_s = 0, round_s = 0; /* by disk */
    struct plan_stream_stage streamed[THREE];
    problem.demand.micro_batches = e->at.n_stages;
    const uint32_t n_micro = placement_micro_batches(&problem);
    for (uint32_t i = 0; i < e->at.n_stages; i++) {
        const struct placement_stage *stage = &e->at.stages[i];
        const struct plan_stream_disk *disk = &e->disks[stage->device];
        if (!plan_stream_stage_of(&problem, stage, room_of(&problem, stage), &streamed[i]))
            return;
        reads_s[disk->index] += (double)streamed[i].streamed_bytes / (double)disk->bytes_per_s;
    }
    for (uint32_t i = 0; i < e->at.n_stages; i++) {
        const struct placement_stage *stage = &e->at.stages[i];
        const struct plan_stream_disk *disk = &e->disks[stage->device];
        const double own_s = (double)streamed[i].streamed_bytes / (double)disk->bytes_per_s,
                     disk_s = n_micro > 1 && own_s > 0 ? reads_s[disk->index] : own_s,
                     computes_s =
                         placement_stage_s(&problem, stage, placement_decode_load(&problem)),
                     stage_s = disk_s > computes_s ? disk_s : computes_s;
        longest_s = stage_s > longest_s ? stage_s : longest_s;
        round_s += stage_s;
    }
    const double period_s = round_s / n_micro > longest_s ? round_s / n_micro : longest_s,
                 rate = problem.demand.streams / (n_micro * period_s);
    e->n_possible++;
    e->best_tokens_per_s = rate > e->best_tokens_per_s ? rate : e->best_tokens_per_s;
}

static void every_placement_from(struct every_placement *e, uint32_t first_layer, unsigned used)
{
    if (first_layer == FEW_LAYERS) {
        every_placement_rate(e);
        return;
    }
    for (uint32_t device = 0; device < THREE; device++) {
        for (uint32_t n = 1; !(used & 1u << device) && first_layer + n <= FEW_LAYERS; n++) {
            e->at.stages[e->at.n_stages++] = (struct placement_stage){device, first_layer, n};
            every_placement_from(e, first_layer + n, used | 1u << device);
            e->at.n_stages--;
        }
    }
}

/* No forecast is faster than what is possible, and what is found is near the best there is: at
 * least 0.86 of it here, and in most of the problems all of it. */
static void test_the_best_of_all_placements(void **state)
{
    (void)state;
    static const uint64_t memories[][THREE] = {{830, 560, 470},  {530, 530, 530}, {390, 1030, 450},
                                               {1130, 510, 350}, {730, 730, 0},   {600, 600, 0},
                                               {450, 440, 420}}; /* no window for all on one */
    static const double rates[][THREE] = {{10e9, 100e9, 10e9}, {20e9, 20e9, 5e9}, {2e9, 30e9, 4e9}};
    static const uint64_t speeds[] = {300000000, 2000000000, UINT64_C(11000000000)};
    enum { MEMORIES = 7, RATES = 3, SPEEDS = 3, POSED = MEMORIES * RATES * SPEEDS };
    const struct placement_options options = placement_options_default();
    double worst = 1;
    uint32_t n_shared = 0;
    for (uint32_t i = 0; i < 2 * POSED; i++) {
        const double *rate = rates[i / MEMORIES % RATES];
        const uint64_t bps = speeds[i / MEMORIES / RATES % SPEEDS];
        const struct plan_stream_disk disks[] = {{bps, 0}, {bps, 0}, {bps / 2, 1}};
        struct plan_stream_placement found;
        struct every_placement e = {
            .problem = pose_three(memories[i % MEMORIES], rate, i / POSED ? 8 : 1), .disks = disks};
        e.problem.demand.goal = i / POSED ? PLACEMENT_THROUGHPUT : PLACEMENT_LATENCY;
        every_placement_from(&e, 0, 0);
        assert_true(e.n_possible > 0);
        assert_true(plan_stream_place(&e.problem, disks, &options, &found));
        const double share = found.decode_tokens_per_s / e.best_tokens_per_s;
        uint32_t n_here = 0;
        for (uint32_t k = 0; k < found.placement.n_stages; k++)
            n_here += found.stages[k].n_streamed && found.placement.stages[k].device < 2;
        n_shared += n_here == 2;
        print_message("# %u: %.3f of the best, %u stages, %u of them share a disk\n", i, share,
                      found.placement.n_stages, n_here);
        assert_true(share < 1.0001);
        worst = share < worst ? share : worst;
    }
    print_message("# the worst: %.3f of the best; %u times two share a disk\n", worst, n_shared);
    assert_true(worst > 0.85);
    assert_true(n_shared > 0);
}

/* The search keeps to the limit where memories would hold more. */
static void test_a_limit_that_several_devices_hold(void **state)
{
    (void)state;
    const struct placement_options options = placement_options_default();
    struct placement_problem problem = pose((uint64_t)9000 * MIB, (uint64_t)9000 * MIB);
    struct placement_solution solution;
    links[1] = links[2] = (struct placement_link){.bytes_per_s = 1e9};
    assert_int_equal(placement_solve(&problem, &options, &solution, NULL), ERROR_NONE);
    assert_int_equal(solution.placement.n_stages, 1);
    problem.demand.weights_max = (uint64_t)2000 * MIB; /* of 3,300 */
    assert_int_equal(placement_solve(&problem, &options, &solution, NULL), ERROR_NONE);
    assert_int_equal(solution.placement.n_stages, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct placement_stage *stage = &solution.placement.stages[i];
        assert_true(placement_shared_bytes(&problem, stage, stage) <= (uint64_t)2000 * MIB);
    }
    problem.demand.weights_max = (uint64_t)1600 * MIB;
    assert_int_equal(placement_solve(&problem, &options, &solution, NULL), ERROR_NOT_FOUND);
}

static void test_not_even_windows_fit(void **state)
{
    (void)state;
    const struct placement_problem problem = pose_apart((uint64_t)150 * MIB, (uint64_t)120 * MIB);
    struct plan_stream_placement stream;
    assert_false(place_apart(&problem, 1000000000, 1000000000, &stream));
    assert_int_equal(stream.n_streamed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_disk_is_what_a_token_waits_for),
        cmocka_unit_test(test_more_memory_beats_a_faster_device),
        cmocka_unit_test(test_the_users_limit_holds),
        cmocka_unit_test(test_too_little_for_a_window),
        cmocka_unit_test(test_its_words),
        cmocka_unit_test(test_memories_are_filled_before_a_disk_is_read),
        cmocka_unit_test(test_disks_share_what_is_streamed),
        cmocka_unit_test(test_a_limit_of_each_stage),
        cmocka_unit_test(test_devices_of_one_machine_share_its_disk),
        cmocka_unit_test(test_the_best_of_all_placements),
        cmocka_unit_test(test_a_limit_that_several_devices_hold),
        cmocka_unit_test(test_not_even_windows_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
