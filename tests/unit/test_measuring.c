/* Measuring devices by themselves: when (pure), in a device's own process, and what the planner
 * makes of a type that was probed and cannot be computed. This program is its own child. */
#include "base/clock.h"
#include "clusterfile/cluster_problem.h"
#include "clusterfile/cluster_rates.h"
#include "node/measuring.h"
#include "pipeline/child_words.h"
#include "pipeline/children.h"
#include "placement/solve.h"
#include "plan/plan_devices.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- when ---------------------------------------------------------------------------------- */

static void test_what_a_calibration_leaves_to_do(void **state)
{
    (void)state;
    const uint64_t now_s = UINT64_C(2000000000);
    assert_int_equal(measuring_need_of(0, false, now_s), MEASURING_SHORT);
    assert_int_equal(measuring_need_of(now_s, true, now_s), MEASURING_FINE);
    assert_int_equal(measuring_need_of(now_s - 86400, false, now_s), MEASURING_NONE);
    assert_int_equal(measuring_need_of(now_s - MEASURING_STALE_S - 1, false, now_s),
                     MEASURING_SHORT);
    assert_int_equal(measuring_need_of(now_s + 86400, false, now_s), MEASURING_NONE); /* a clock */
}

static bool next(struct measuring_round *measuring, const enum measuring_need *needs, bool busy,
                 uint64_t now_ms, uint32_t *device)
{
    uint32_t budget_ms;
    return measuring_next(measuring, needs, 3, busy, now_ms, device, &budget_ms);
}

static void test_short_ones_first_when_idle(void **state)
{
    (void)state;
    struct measuring_round measuring = {0};
    enum measuring_need needs[] = {MEASURING_FINE, MEASURING_NONE, MEASURING_SHORT};
    uint32_t device;
    assert_false(next(&measuring, needs, true, 1000, &device));
    assert_false(next(&measuring, needs, false, 2000, &device)); /* idle since now */
    assert_false(next(&measuring, needs, false, 2999, &device));
    assert_true(next(&measuring, needs, false, 3000, &device));
    assert_int_equal(device, 2);
    assert_false(next(&measuring, needs, false, 4000, &device)); /* one at a time */
    measuring_ended(&measuring, ERROR_NONE, 5000);
    needs[2] = MEASURING_FINE;
    assert_false(next(&measuring, needs, false, 5000, &device));
    assert_true(next(&measuring, needs, false, 2000 + MEASURING_IDLE_FINE_MS, &device));
    assert_int_equal(device, 0);
}

static void test_other_work_and_failures(void **state)
{
    (void)state;
    struct measuring_round measuring = {0};
    const enum measuring_need needs[] = {MEASURING_SHORT, MEASURING_NONE, MEASURING_NONE};
    uint32_t device;
    uint64_t now_ms = 10000;
    next(&measuring, needs, false, now_ms, &device);
    assert_true(next(&measuring, needs, false, now_ms += MEASURING_IDLE_MS, &device));
    measuring_ended(&measuring, ERROR_CANCELLED, now_ms);
    assert_false(next(&measuring, needs, false, now_ms += 500, &device)); /* idle anew */
    assert_true(next(&measuring, needs, false, now_ms += MEASURING_IDLE_MS, &device));
    uint64_t wait_ms = MEASURING_RETRY_MS;
    for (int i = 0; i < 20; i++) {
        measuring_ended(&measuring, ERROR_DEVICE, now_ms);
        assert_false(next(&measuring, needs, false, now_ms + wait_ms - 1, &device));
        assert_true(next(&measuring, needs, false, now_ms += wait_ms, &device));
        wait_ms = 2 * wait_ms < MEASURING_RETRY_MAX_MS ? 2 * wait_ms : MEASURING_RETRY_MAX_MS;
    }
}

/* ---- in the device's process --------------------------------------------------------------- */

static char sim_path[] = "/tmp/medley-measuring-XXXXXX";

static int write_sim(void **state)
{
    (void)state;
    static const char text[] = "[slow]\nmemory = 1GiB\ndecode = 1GB/s\nflops = 8GFLOP/s\n"
                               "speed = measured\ncannot = q4_0\n";
    const int file = mkstemp(sim_path);
    const bool wrote = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    return file < 0 || close(file) || !wrote ? -1 : 0;
}

static int remove_sim(void **state)
{
    (void)state;
    return unlink(sim_path);
}

struct heard {
    pthread_mutex_t lock;
    uint32_t n;
    enum error_code code;
    struct device_calibration found;
};

static void hear(void *arg, const char *device, const struct device_calibration *found,
                 const struct error *why)
{
    struct heard *heard = arg;
    pthread_mutex_lock(&heard->lock);
    assert_string_equal(device, "sim:slow");
    heard->n++;
    heard->code = found ? ERROR_NONE : why->code;
    if (found)
        heard->found = *found;
    pthread_mutex_unlock(&heard->lock);
}

static bool has_heard(struct heard *heard)
{
    pthread_mutex_lock(&heard->lock);
    const bool has = heard->n;
    pthread_mutex_unlock(&heard->lock);
    return has;
}

static void wait_heard(struct heard *heard)
{
    const uint64_t end_ns = clock_now_ns() + UINT64_C(120) * 1000000000;
    while (!has_heard(heard)) {
        if (clock_now_ns() > end_ns)
            fail_msg("nothing came of measuring");
        usleep(10000);
    }
}

static struct children *open_children(void)
{
    const struct children_options options = {.sim_file = sim_path, .n_cpu_threads = 1};
    struct children *children;
    struct error err;
    if (children_open(&options, &children, &err))
        fail_msg("%s", err.text);
    return children;
}

static void ask_for(struct children *children, uint32_t budget_ms, struct heard *heard)
{
    struct error err;
    if (children_measure(children, "sim:slow", budget_ms, hear, heard, &err))
        fail_msg("%s", err.text);
}

static void test_a_device_is_measured_in_its_process(void **state)
{
    (void)state;
    struct children *children = open_children();
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ask_for(children, MEASURING_SHORT_BUDGET_MS, &heard);
    assert_int_equal(children_measure(children, "sim:slow", 1, hear, &heard, NULL), ERROR_BUSY);
    assert_false(children_are_busy(children)); /* measuring is no work */
    wait_heard(&heard);
    assert_int_equal(heard.code, ERROR_NONE);
    assert_true(heard.found.is_short && heard.found.unix_s && heard.found.n_types > 2);
    for (uint32_t i = 0; i < heard.found.n_types; i++) {
        const struct calibration_type *type = &heard.found.types[i];
        if (!strcmp(type->name, "q4_0")) /* probed, and no run */
            assert_int_equal(type->decode_bytes_per_s.n_runs, 0);
        else /* as its file says, and never faster but for the clock's grain */
            assert_true(type->decode_bytes_per_s.n_runs && type->decode_bytes_per_s.median < 1.1e9);
    }
    children_close(children);
}

static void test_other_work_stops_it_at_once(void **state)
{
    (void)state;
    struct children *children = open_children();
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ask_for(children, 60000, &heard);
    while (!children_pid(children, "sim:slow"))
        usleep(10000);
    usleep(500000); /* it may have begun: or not yet, and is stopped all the same */
    assert_false(has_heard(&heard));
    const uint64_t start_ns = clock_now_ns();
    children_measure_stop(children);
    wait_heard(&heard);
    printf("# stopped after %.0f ms\n", (double)(clock_now_ns() - start_ns) * 1e-6);
    assert_int_equal(heard.code, ERROR_CANCELLED);
    struct heard never = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ask_for(children, 60000, &never);
    children_measure_forget(children);
    children_close(children);
    assert_int_equal(never.n, 0);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void test_what_a_child_says_of_it(void **state)
{
    (void)state;
    static struct child_word word, back;
    struct buffer bytes = {0};
    word = (struct child_word){.kind = CHILD_MEASURED};
    word.calibration = (struct device_calibration){
        .unix_s = 7,
        .is_short = true,
        .n_types = 2,
        .types = {{"q8_0", {1e9, 0.1, 3}, {2e9, 0, 4}}, {.name = "q4_0"}},
        .launch_ns = {5000, 0.5, 9}};
    child_word_write(&word, &bytes);
    assert_int_equal(child_word_read(bytes.data, bytes.size, &back, NULL), ERROR_NONE);
    assert_memory_equal(&back.calibration, &word.calibration, sizeof word.calibration);
    const double bad[] = {-1, 0, 1e30, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        word.calibration.types[0].decode_bytes_per_s.median = bad[i];
        buffer_clear(&bytes);
        child_word_write(&word, &bytes);
        assert_int_equal(child_word_read(bytes.data, bytes.size, &back, NULL), ERROR_INVALID);
    }
    buffer_deinit(&bytes);
}

/* ---- what the planner makes of it --------------------------------------------------------- */

static struct placement_layer layers[4];

/* Two devices with a calibration each; the first is the faster, and lacks `lack` where that is
 * given. */
static uint32_t device_of_all_layers(const char *lack, const char *lack_too, struct error *err)
{
    struct cluster cluster = {0};
    struct cluster_problem posed;
    struct placement_solution solution;
    const char *const lacks[] = {lack, lack_too};
    struct placement_model model = {.n_types = 1, .type_names = {"q4_0"}, .n_layers = 4};
    struct cluster_node *node = cluster_add_node(&cluster);
    snprintf(node->name, sizeof node->name, "here");
    for (int i = 0; i < 2; i++) {
        struct device_calibration calibration = {
            .n_types = 2,
            .types = {{"q8_0", {1e9, 0, 3}, {1e10, 0, 3}}, {"q4_0", {i ? 1e9 : 9e9, 0, 3}, {0}}}};
        const struct device_info info = {.id = "gpu", .backend = "vulkan", .kind = DEVICE_GPU};
        struct cluster_device *device = cluster_add_device(&cluster);
        if (lacks[i])
            calibration.types[1].decode_bytes_per_s = (struct device_measurement){0};
        plan_device_describe(&(struct plan_device_facts){.info = &info,
                                                         .memory = {1 << 30, 1 << 30},
                                                         .calibration = &calibration},
                             device);
        assert_true(cluster_type_is_lacking(device, "q4_0") == (lacks[i] != NULL));
        assert_false(cluster_type_is_lacking(device, "q8_0"));
        assert_false(cluster_type_is_lacking(device, "q6_K")); /* not probed: not known */
    }
    snprintf(cluster.devices[1].id, sizeof cluster.devices[1].id, "gpu1");
    for (int i = 0; i < 4; i++)
        layers[i] = (struct placement_layer){.bytes = {1000000}, .bytes_per_token = {1000000}};
    model.layers = layers;
    const struct placement_demand demand = {
        .context_tokens = 128, .streams = 1, .goal = PLACEMENT_LATENCY};
    if (cluster_problem_init(&posed, &cluster, &model, &demand, err))
        fail_msg("%s", err->text);
    const struct placement_options options = placement_options_default();
    const enum error_code code = placement_solve(&posed.problem, &options, &solution, err);
    const uint32_t device = code ? 99 : solution.placement.stages[0].device;
    assert_true(code || solution.placement.n_stages == 1);
    cluster_problem_deinit(&posed);
    cluster_deinit(&cluster);
    return device;
}

static void test_no_layer_goes_where_its_type_was_probed_in_vain(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(device_of_all_layers(NULL, NULL, &err), 0); /* the faster */
    assert_int_equal(device_of_all_layers("q4_0", NULL, &err), 1);
    assert_int_equal(device_of_all_layers("q4_0", "q4_0", &err), 99);
    printf("# refused: %s\n", err.text);
    assert_non_null(strstr(err.text, "type"));
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_calibration_leaves_to_do),
        cmocka_unit_test(test_short_ones_first_when_idle),
        cmocka_unit_test(test_other_work_and_failures),
        cmocka_unit_test(test_what_a_child_says_of_it),
        cmocka_unit_test(test_no_layer_goes_where_its_type_was_probed_in_vain),
        cmocka_unit_test(test_a_device_is_measured_in_its_process),
        cmocka_unit_test(test_other_work_stops_it_at_once),
    };
    return cmocka_run_group_tests_name("measuring", tests, write_sim, remove_sim);
}
