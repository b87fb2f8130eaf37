/* This machine's plan: splits that are given, and splits of its own against all that there are. */
#include "sim_world.h"

#include "base/mem.h"
#include "engine/batch_shape.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "plan/plan.h"
#include "report/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 7 }; /* of gemma3 */

static struct model *gemma;

static int open_gemma(void **state)
{
    (void)state;
    gemma = open_model_unwindowed("gemma3");
    assert_int_equal(model_hyperparameters(gemma)->n_layers, LAYERS);
    return 0;
}

static int close_gemma(void **state)
{
    (void)state;
    model_close(gemma);
    return 0;
}

/* ---- machines of simulated devices ------------------------------------------------------- */

#define DEVICE(name, memory, decode, flops)                                                        \
    "[" name "]\nmemory = " memory "\ndecode = " decode "\nflops = " flops                         \
    "\nlaunch = 10us\ncopy = 1GB/s\n"

struct machine {
    struct gpu *gpu;
    struct device *devices[8];
    struct driver_options options;
    struct plan_request request;
};

/* With 2 MiB of KV cache a layer and slot, and small buffers. */
static void machine_open(struct machine *machine, const char *ini, uint32_t n_slots)
{
    *machine = (struct machine){.gpu = open_sim(ini)};
    machine->options =
        (struct driver_options){.context = 16384, .batch_rows = 16, .n_slots = n_slots};
    machine->request =
        (struct plan_request){.devices = machine->devices, .options = &machine->options};
    assert_int_equal(
        gpu_select(machine->gpu, NULL, machine->devices, 8, &machine->request.n_devices, NULL),
        ERROR_NONE);
}

static struct plan plan_of(const struct machine *machine)
{
    struct plan plan;
    struct error err = {0};
    if (plan_make(&plan, gemma, &machine->request, &err))
        fail_msg("%s", err.text);
    return plan;
}

static void expect_refused(const struct machine *machine, const char *split, enum error_code code,
                           const char *text)
{
    struct plan_request request = machine->request;
    struct plan plan;
    struct error err = {0};
    request.split = split;
    assert_int_equal(plan_make(&plan, gemma, &request, &err), code);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
    plan_deinit(&plan);
}

static void expect_stages(const struct plan *plan, const char *expected)
{
    char text[256];
    size_t used = 0;
    for (uint32_t i = 0; i < plan->n_stages; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %u", i ? ", " : "",
                                 device_info(plan->stages[i].device)->id, plan->stages[i].n_layers);
    assert_string_equal(text, expected);
    assert_int_equal(placement_check(&plan->problem, &plan->solution.placement, NULL), ERROR_NONE);
}

/* ---- weights whose memory is limited ------------------------------------------------------- */

/* What the plan says is what the stages keep. */
static void expect_loaded_within(const struct machine *machine, const struct plan *plan,
                                 uint64_t limit)
{
    struct driver *driver;
    struct error err = {0};
    if (driver_open(gemma, plan->stages, plan->n_stages, &machine->options, &driver, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < plan->n_stages; i++)
        assert_true(stage_memory(driver_stage(driver, i)).weights <= limit);
    driver_close(driver);
}

static void test_each_device_streams_its_share(void **state)
{
    (void)state;
    struct machine machine;
    struct buffer words = {0};
    machine_open(
        &machine,
        DEVICE("a", "1GiB", "900GB/s", "1TFLOP/s") DEVICE("b", "1GiB", "900GB/s", "1TFLOP/s"), 1);
    const uint64_t limit = model_weight_bytes(gemma) * 60 / 100;
    machine.request.may_stream = true;
    machine.options.weights_max = limit;
    struct plan plan = plan_of(&machine);
    assert_int_equal(plan.n_stages, 2);
    assert_true(plan.streams.n_streamed > 0);
    assert_true(plan_stream_say(&plan, &words));
    assert_non_null(strstr(words.data, "streamed from this disk"));
    expect_loaded_within(&machine, &plan, limit);
    plan_deinit(&plan);
    buffer_deinit(&words);
    gpu_close(machine.gpu);
}

/* ---- a split that is given ---------------------------------------------------------------- */

static void test_a_given_split(void **state)
{
    (void)state;
    struct machine machine;
    machine_open(&machine,
                 DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s") DEVICE("b", "1GiB", "9GB/s", "1TFLOP/s"),
                 1);
    machine.request.split = "3,4";
    struct plan plan = plan_of(&machine);
    expect_stages(&plan, "sim:a 3, sim:b 4");
    assert_true(plan.is_given && !plan.proved);
    plan_deinit(&plan);
    expect_refused(&machine, "3,6", ERROR_INVALID,
                   "split '3,6' adds up to 9 layers; the model has 7");
    expect_refused(&machine, "7", ERROR_INVALID,
                   "split '7' has 1 part for 2 devices (sim:a, sim:b)");
    expect_refused(&machine, "3,2,2", ERROR_INVALID, "3 parts for 2 devices");
    expect_refused(&machine, "7,0", ERROR_INVALID, "part 2");
    expect_refused(&machine, "", ERROR_INVALID, "part 1");
    expect_refused(&machine, "4,", ERROR_INVALID, "part 2");
    expect_refused(&machine, ",4", ERROR_INVALID, "part 1");
    expect_refused(&machine, "4;4", ERROR_INVALID, "part 1");
    expect_refused(&machine, "-4,12", ERROR_INVALID, "part 1");
    expect_refused(&machine, " 4,3", ERROR_INVALID, "part 1");
    expect_refused(&machine, "4,99999999999999999999999", ERROR_INVALID, "part 2");
    expect_refused(&machine, "4,4294967300", ERROR_INVALID, "part 2");
    gpu_close(machine.gpu);
}

static void test_a_given_split_must_fit(void **state)
{
    (void)state;
    struct machine machine;
    machine_open(&machine,
                 DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s") DEVICE("b", "8MiB", "9GB/s", "1TFLOP/s"),
                 1);
    expect_refused(&machine, "2,5", ERROR_INVALID,
                   "the split is not possible: placement: stage 1: sim:b: layers 2 to 6 need ");
    machine.request.split = "6,1";
    struct plan plan = plan_of(&machine);
    expect_stages(&plan, "sim:a 6, sim:b 1");
    plan_deinit(&plan);
    gpu_close(machine.gpu);
}

static void test_one_device_in_several_stages(void **state)
{
    (void)state;
    struct machine machine;
    machine_open(&machine, DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"), 1);
    machine.request.split = "2,4,1";
    struct plan plan = plan_of(&machine);
    assert_int_equal(plan.n_stages, 3);
    assert_int_equal(plan.stages[1].n_layers, 4);
    assert_ptr_equal(plan.stages[0].device, plan.stages[2].device);
    assert_int_equal(plan.solution.placement.n_stages, 1);
    assert_int_equal(plan.solution.placement.stages[0].n_layers, LAYERS);
    assert_int_equal(plan.problem.devices[0].reserve_bytes, 2 * plan.problem.model.compute_bytes);
    plan_deinit(&plan);
    gpu_close(machine.gpu);
}

/* ---- splits of its own: none is faster ---------------------------------------------------- */

struct force {
    struct placement_problem problem;
    struct placement placement;
    double best; /* tokens/s */
    uint32_t n_valid;
};

static double rate_of(const struct placement_problem *problem, const struct placement *placement)
{
    struct placement_problem as_run = *problem;
    as_run.demand.micro_batches = placement->n_stages;
    const struct placement_cost cost = placement_decode_cost(&as_run, placement);
    return placement_decode_tokens_per_s(&as_run, &cost);
}

static void place_rest(struct force *force, uint32_t first_layer, unsigned used)
{
    struct placement *placement = &force->placement;
    if (first_layer == LAYERS && placement_check(&force->problem, placement, NULL) == ERROR_NONE) {
        force->best = fmax(force->best, rate_of(&force->problem, placement));
        force->n_valid++;
    }
    for (uint32_t d = 0; d < force->problem.n_devices; d++) {
        for (uint32_t n = 1; !(used >> d & 1) && first_layer + n <= LAYERS; n++) {
            placement->stages[placement->n_stages++] = (struct placement_stage){d, first_layer, n};
            place_rest(force, first_layer + n, used | 1u << d);
            placement->n_stages--;
        }
    }
}

static void expect_the_fastest(const char *ini, uint32_t n_slots, const char *stages)
{
    struct machine machine;
    machine_open(&machine, ini, n_slots);
    struct plan plan = plan_of(&machine);
    struct force force = {.problem = plan.problem};
    place_rest(&force, 0, 0);
    assert_true(force.n_valid > 0);
    const double rate = rate_of(&plan.problem, &plan.solution.placement);
    if (fabs(rate - force.best) > 1e-6 * force.best)
        fail_msg("%.6f tokens/s; the best of %u is %.6f", rate, force.n_valid, force.best);
    assert_true(plan.proved && !plan.is_given);
    expect_stages(&plan, stages);
    plan_deinit(&plan);
    gpu_close(machine.gpu);
}

/* One stream: every layer where it is fastest, and no hop for nothing. */
static void test_the_fastest_device_takes_all_that_fits(void **state)
{
    (void)state;
    expect_the_fastest(DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s")
                           DEVICE("b", "1GiB", "300MB/s", "1TFLOP/s"),
                       1, "sim:b 7");
    expect_the_fastest(DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s")
                           DEVICE("b", "12MiB", "300MB/s", "1TFLOP/s"),
                       1, "sim:a 2, sim:b 5");
    expect_the_fastest(DEVICE("a", "8MiB", "100MB/s", "1TFLOP/s")
                           DEVICE("b", "8MiB", "300MB/s", "1TFLOP/s")
                               DEVICE("c", "8MiB", "200MB/s", "1TFLOP/s"),
                       1, "sim:c 3, sim:a 1, sim:b 3");
}

/* Several streams: two devices of 3 to 1, both computing all the time. */
static void test_streams_are_shared_out_by_speed(void **state)
{
    (void)state;
    expect_the_fastest(DEVICE("a", "1GiB", "1GB/s", "30MFLOP/s")
                           DEVICE("b", "1GiB", "1GB/s", "10MFLOP/s"),
                       8, "sim:a 6, sim:b 1");
}

/* What `medley plan` says of these devices is what the driver gets: stage by stage, with the same
 * forecast. */
static void expect_the_report_agrees(const struct machine *machine)
{
    struct driver_options options;
    struct plan_compute compute;
    struct cluster cluster;
    struct plan_model cost;
    struct report report;
    struct error err = {0};
    struct plan plan = plan_of(machine);
    if (driver_options_fill(&machine->options, gemma, &options, &err) ||
        plan_compute_measure_all(machine->devices, machine->request.n_devices, gemma, &options,
                                 &compute, &err) ||
        plan_devices_init(&cluster, machine->devices, machine->request.n_devices, &err) ||
        plan_model_init(&cost, gemma, &options, &compute, plan_devices_count_embedding(&cluster),
                        &err))
        fail_msg("%s", err.text);
    const struct report_ask ask = {
        .cluster = &cluster, .model = &cost.model, .demand = plan_demand(&options), .here = true};
    if (report_init(&report, &ask, &err))
        fail_msg("%s", err.text);
    assert_int_equal(report.outcome, ERROR_NONE);
    assert_memory_equal(&report.solution.placement.stages, &plan.solution.placement.stages,
                        plan.n_stages * sizeof *plan.solution.placement.stages);
    assert_int_equal(report.solution.placement.n_stages, plan.n_stages);
    struct placement_forecast forecast;
    placement_forecast(&plan.problem, &plan.solution.placement, &forecast);
    assert_true(forecast.decode_tokens_per_s == report.forecast.decode_tokens_per_s);
    assert_true(forecast.prefill_tokens_per_s == report.forecast.prefill_tokens_per_s);
    assert_true(forecast.prefill_tokens_per_s > 0 && forecast.decode_tokens_per_s > 0);
    assert_true(forecast.decode_spread == report.forecast.decode_spread);
    report_deinit(&report);
    plan_model_deinit(&cost);
    cluster_deinit(&cluster);
    plan_deinit(&plan);
}

static void test_the_report_agrees(void **state)
{
    (void)state;
    static const char *const files[] = {
        DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s") DEVICE("b", "1GiB", "300MB/s", "1TFLOP/s"),
        DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s") DEVICE("b", "13MiB", "300MB/s", "1TFLOP/s"),
        DEVICE("a", "9MiB", "100MB/s", "1TFLOP/s") DEVICE("b", "9MiB", "300MB/s", "1TFLOP/s")
            DEVICE("c", "9MiB", "200MB/s", "1TFLOP/s"),
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct machine machine;
        machine_open(&machine, files[i], 1);
        expect_the_report_agrees(&machine);
        gpu_close(machine.gpu);
    }
    struct machine machine;
    machine_open(
        &machine,
        DEVICE("a", "1GiB", "1GB/s", "30MFLOP/s") DEVICE("b", "1GiB", "1GB/s", "10MFLOP/s"), 8);
    expect_the_report_agrees(&machine);
    gpu_close(machine.gpu);
}

/* Of what no file gives a part is kept free, unless the user gives the split himself. */
static void test_what_is_kept_free(void **state)
{
    (void)state;
    struct cluster_device device;
    const struct device_info info = {.id = "cuda0", .backend = "cuda", .kind = DEVICE_GPU};
    const struct plan_device_facts facts = {.info = &info, .memory = {1 << 30, UINT64_C(2) << 30}};
    plan_device_describe(&facts, &device);
    assert_true(device.memory_bytes == 1 << 30 && device.reserve_bytes == (1 << 30) / 16);
    const struct plan_device_facts unknown = {.info = &info};
    plan_device_describe(&unknown, &device);
    assert_true(device.memory_bytes == PLACEMENT_BYTES_MAX && device.reserve_bytes == 0);
}

static void test_what_does_not_fit_says_what_would(void **state)
{
    (void)state;
    struct machine machine;
    machine_open(&machine, DEVICE("a", "10MiB", "1GB/s", "1TFLOP/s"), 1);
    expect_refused(&machine, NULL, ERROR_NOT_FOUND, "sim:a: layers 0 to 6 need ");
    expect_refused(&machine, NULL, ERROR_NOT_FOUND, "; it would fit with --kv q8_0, or --context ");
    expect_refused(&machine, NULL, ERROR_NOT_FOUND, " MiB more on sim:a");
    gpu_close(machine.gpu);
    machine_open(
        &machine,
        DEVICE("a", "12MiB", "1GB/s", "1TFLOP/s") DEVICE("b", "12MiB", "1GB/s", "1TFLOP/s"), 3);
    expect_refused(&machine, NULL, ERROR_NOT_FOUND, "are missing");
    expect_refused(&machine, NULL, ERROR_NOT_FOUND, " (MiB: weights 0.");
    expect_refused(&machine, NULL, ERROR_NOT_FOUND, "--slots 1");
    machine.options.n_slots = LIMIT_SEQUENCES + 1;
    expect_refused(&machine, NULL, ERROR_INVALID, "sequences");
    gpu_close(machine.gpu);
}

/* What it says would help does help: the context of the message is planned, and one step more is
 * refused. */
static void test_the_context_that_it_says_fits(void **state)
{
    (void)state;
    struct machine machine;
    machine_open(&machine, DEVICE("a", "10MiB", "1GB/s", "1TFLOP/s"), 1);
    struct plan plan;
    struct error err = {0};
    assert_int_equal(plan_make(&plan, gemma, &machine.request, &err), ERROR_NOT_FOUND);
    const char *said = strstr(err.text, "--context ");
    assert_non_null(said);
    const uint32_t context = (uint32_t)strtoul(said + strlen("--context "), NULL, 10);
    assert_in_range(context, 1024, 16383);
    machine.options.context = context;
    plan = plan_of(&machine);
    expect_stages(&plan, "sim:a 7");
    plan_deinit(&plan);
    gpu_close(machine.gpu);
}

/* Nobody asked for a context: 4,096 tokens where there is not much more memory, the model's own
 * where there is, and what fits where that is less. What its maker wishes comes first. */
static void test_the_context_follows_what_fits(void **state)
{
    (void)state;
    static const struct {
        const char *ini;
        uint32_t given, wished, context;
    } cases[] = {
        {DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"), 0, 0, 20000},
        {DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"), 600, 0, 600},
        {DEVICE("a", "20MiB", "1GB/s", "1TFLOP/s"), 0, 0, 4096},
        {DEVICE("a", "80MiB", "1GB/s", "1TFLOP/s"), 0, 0, 8192},
        {DEVICE("a", "4MiB", "1GB/s", "1TFLOP/s"), 0, 0, 2048},
        {DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"), 0, 3000, 3000},
        {DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"), 600, 3000, 600},
        {DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"), 0, 99999, 20000},
        {DEVICE("a", "4MiB", "1GB/s", "1TFLOP/s"), 0, 8192, 2048},
    };
    struct hyperparameters *h = (struct hyperparameters *)(uintptr_t)model_hyperparameters(gemma);
    const uint32_t n_context_train = h->n_context_train;
    h->n_context_train = 20000;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct machine machine;
        struct plan plan;
        struct error err = {0};
        uint32_t context;
        machine_open(&machine, cases[i].ini, 1);
        machine.options.context = cases[i].given;
        machine.request.context_wished = cases[i].wished;
        if (plan_make_context(&plan, gemma, &machine.request, &context, &err))
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(context, cases[i].context);
        assert_int_equal(plan.problem.demand.context_tokens, kv_cells(context));
        plan_deinit(&plan);
        gpu_close(machine.gpu);
    }
    struct machine machine;
    struct plan plan;
    struct error err = {0};
    uint32_t context;
    machine_open(&machine, DEVICE("a", "4MiB", "1GB/s", "1TFLOP/s"), 16);
    machine.options.context = 0;
    assert_int_equal(plan_make_context(&plan, gemma, &machine.request, &context, &err),
                     ERROR_NOT_FOUND);
    expect_words(&err, "need");
    gpu_close(machine.gpu);
    h->n_context_train = n_context_train;
}

/* A spare device is as good as the others when all were measured. */
static void test_spare_devices(void **state)
{
    (void)state;
    struct machine machine;
    machine_open(&machine,
                 DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s") DEVICE("b", "1GiB", "2GB/s", "1TFLOP/s"),
                 1);
    machine.request.n_spare = 1;
    struct plan plan = plan_of(&machine);
    expect_stages(&plan, "sim:b 7");
    plan_deinit(&plan);
    gpu_close(machine.gpu);
}

/* Fails one allocation after the other until none does; then the answer is `expected`. */
static void fail_every_allocation(const char *ini, enum error_code expected)
{
    struct machine machine;
    machine_open(&machine, ini, 4);
    unsigned nth = 0;
    for (bool failed = true; failed && nth < 1000;) {
        struct plan plan;
        struct error err = {0};
        mem_fail_nth(++nth);
        enum error_code code = plan_make(&plan, gemma, &machine.request, &err);
        mem_fail_nth(0);
        failed = code != expected;
        if (failed)
            assert_int_equal(code, ERROR_NO_MEMORY);
        plan_deinit(&plan);
    }
    assert_in_range(nth, 5, 999);
    gpu_close(machine.gpu);
}

static void test_every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    fail_every_allocation(DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s")
                              DEVICE("b", "1GiB", "2GB/s", "1TFLOP/s"),
                          ERROR_NONE);
    fail_every_allocation(DEVICE("a", "6MiB", "1GB/s", "1TFLOP/s")
                              DEVICE("b", "6MiB", "2GB/s", "1TFLOP/s"),
                          ERROR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_device_streams_its_share),
        cmocka_unit_test(test_a_given_split),
        cmocka_unit_test(test_a_given_split_must_fit),
        cmocka_unit_test(test_one_device_in_several_stages),
        cmocka_unit_test(test_the_fastest_device_takes_all_that_fits),
        cmocka_unit_test(test_streams_are_shared_out_by_speed),
        cmocka_unit_test(test_what_does_not_fit_says_what_would),
        cmocka_unit_test(test_the_context_that_it_says_fits),
        cmocka_unit_test(test_the_context_follows_what_fits),
        cmocka_unit_test(test_the_report_agrees),
        cmocka_unit_test(test_what_is_kept_free),
        cmocka_unit_test(test_spare_devices),
        cmocka_unit_test(test_every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_gemma, close_gemma);
}
