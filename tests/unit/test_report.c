/* From a cluster to a placement problem, and the report's text and JSON on a fixed one. */
#include "base/mem.h"
#include "clusterfile/cluster_file.h"
#include "placement/check.h"
#include "report/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

enum { LAYERS = 10 };

static struct placement_layer layers[LAYERS];
static struct placement_model model;
static struct report_ask ask;
static struct cluster cluster;

/* Ten layers of 1 GiB in q4_K, 2 GFLOP a token; a hidden state has 16 KiB. */
static void make_model(void)
{
    const uint64_t gib = UINT64_C(1) << 30;
    model = (struct placement_model){.n_types = 2,
                                     .type_names = {"f32", "q4_K"},
                                     .n_layers = LAYERS,
                                     .layers = layers,
                                     .activation_bytes_per_token = 16384,
                                     .output_bytes_per_token = 400000,
                                     .compute_bytes = gib / 4};
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (struct placement_layer){.kv_bytes_per_token = 4096};
        layers[i].bytes[1] = layers[i].bytes_per_token[1] = gib;
        layers[i].flops_per_token[1] = 2e9;
    }
    ask = (struct report_ask){
        .cluster = &cluster,
        .model = &model,
        .demand = {.context_tokens = 4096, .streams = 1},
        .kv_types = {.current = {"f16", 1, 2}, .n = 1, .others = {{"q8_0", 32, 34}}},
        .model_name = "ten",
        .weight_bytes = LAYERS * gib};
}

static void use(const char *text)
{
    struct error err = {0};
    cluster_deinit(&cluster);
    make_model();
    if (cluster_parse(text, strlen(text), &cluster, &err))
        fail_msg("%s", err.text);
}

static struct cluster_problem problem_of(void)
{
    struct cluster_problem problem;
    struct error err = {0};
    if (cluster_problem_init(&problem, &cluster, &model, &ask.demand, &err))
        fail_msg("%s", err.text);
    return problem;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

/* ---- the problem ----------------------------------------------------------------------------- */

#define MEASURED(id, rate, more)                                                                   \
    "{\"id\":\"" id "\",\"memory\":\"16GiB\",\"reserve\":\"0B\"," more                             \
    "\"calibration\":{\"types\":["                                                                 \
    "{\"name\":\"q4_K\",\"decode_bytes_per_s\":{\"median\":" rate ",\"spread\":0.05,\"runs\":9},"  \
    "\"prefill_flops\":{\"median\":2e12,\"spread\":0.1,\"runs\":9}}],"                             \
    "\"read_bytes_per_s\":{\"median\":4e9},\"write_bytes_per_s\":{\"median\":8e9},\"launch_ns\":{" \
    "\"median\":50000}}}"

static void devices_and_links(void **state)
{
    use("{\"nodes\":[{\"name\":\"a\",\"devices\":[" MEASURED("cuda0", "100e9", "") "," MEASURED(
        "cuda1", "50e9",
        "") "]},"
            "{\"name\":\"b\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"8GiB\",\"bandwidth\":"
            "\"100GB/s\"}]},"
            "{\"name\":\"c\",\"devices\":[]}],"
            "\"links\":[{\"between\":[\"a\",\"c\"],\"latency_ms\":1,\"bandwidth\":\"80Mb/s\"},"
            "{\"between\":[\"c\",\"b\"],\"latency_ms\":2,\"bandwidth\":\"160Mb/s\"}]}");
    struct cluster_problem problem = problem_of();
    const struct placement_device *cuda = &problem.devices[0], *cpu = &problem.devices[2];
    near(cuda->decode_bytes_per_s[1], 100e9);
    near(cuda->decode_bytes_per_s[0], 100e9); /* f32 was not measured: the slowest that was */
    near(cuda->kv_bytes_per_s, 100e9);
    near(cuda->prefill_flops[1], 2e12);
    near(cuda->copy_bytes_per_s, 4e9);
    near(cuda->launch_s, 50e-6);
    near(cuda->spread, 0.05);
    assert_true(cuda->measured && !cpu->measured && cpu->spread == 0);
    near(cpu->decode_bytes_per_s[1], 70e9);
    strcpy(model.type_names[1], "q6_K"); /* which nobody measured */
    struct cluster_problem other = problem_of();
    assert_false(other.devices[0].measured);
    near(other.devices[0].decode_bytes_per_s[1], 100e9);
    cluster_problem_deinit(&other);
    assert_true(cpu->prefill_flops[1] == 0 && cpu->copy_bytes_per_s == 0);
    assert_string_equal(cpu->node, "b");
    near(placement_link(&problem.problem, 0, 1)->bytes_per_s, PLACEMENT_RATE_MAX);
    const struct placement_link *far = placement_link(&problem.problem, 1, 2); /* through c */
    near(far->latency_s, 0.003);
    near(far->bytes_per_s, 1 / (1 / 10e6 + 1 / 20e6));
    cluster_problem_deinit(&problem);
}

static void a_lossy_link_is_a_line_through_both_sizes(void **state)
{
    use("{\"nodes\":[{\"name\":\"a\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"8GiB\"}]},"
        "{\"name\":\"b\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"8GiB\"}]}],"
        "\"links\":[{\"between\":[\"a\",\"b\"],\"latency_ms\":2,\"jitter_ms\":1,\"overhead_ms\":0."
        "1,\"loss_pct\":1,"
        "\"bandwidth\":\"300Mb/s\"}]}");
    struct cluster_problem problem = problem_of();
    const struct placement_link *link = placement_link(&problem.problem, 0, 1);
    const struct topology_link *measured = topology_link(&problem.topology, 0, 1);
    for (int i = 0; i < 2; i++) {
        const uint64_t bytes = 16384 * (i ? 512 : 1);
        near(link->latency_s + (double)bytes / link->bytes_per_s,
             topology_link_time(measured, bytes).seconds);
    }
    cluster_problem_deinit(&problem);
}

static void one_memory_is_counted_once(void **state)
{
    const uint64_t gib = UINT64_C(1) << 30;
    use("{\"nodes\":[{\"name\":\"a\",\"memory\":\"32GiB\",\"devices\":["
        "{\"id\":\"cpu\",\"bandwidth\":\"50GB/s\"},"
        "{\"id\":\"igpu\",\"kind\":\"integrated "
        "gpu\",\"memory\":\"12GiB\",\"bandwidth\":\"60GB/s\"},"
        "{\"id\":\"llvmpipe\",\"kind\":\"cpu\",\"backend\":\"vulkan\"},"
        "{\"id\":\"cuda0\",\"memory\":\"24GiB\",\"pci\":\"0000:01:00.0\",\"bandwidth\":\"900GB/"
        "s\"},"
        "{\"id\":\"vulkan0\",\"memory\":\"23.9GiB\",\"pci\":\"0000:01:00.0\",\"bandwidth\":\"800GB/"
        "s\"},"
        "{\"id\":\"cuda1\",\"memory\":\"24GiB\",\"pci\":\"0000:02:00.0\",\"bandwidth\":\"900GB/"
        "s\"}]},"
        "{\"name\":\"b\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"8GiB\"}]}]}");
    struct cluster_problem problem = problem_of();
    static const uint64_t gibs[] = {20, 12, 0, 24, 0, 24, 8};
    static const uint32_t of[] = {1, 1, 1, 3, 3, 5, 6};
    for (uint32_t i = 0; i < 7; i++) {
        assert_true(problem.devices[i].memory_free_bytes == gibs[i] * gib);
        assert_true(problem.devices[i].reserve_bytes <= problem.devices[i].memory_free_bytes);
        assert_int_equal(problem.memory_of[i], of[i]);
    }
    cluster_problem_deinit(&problem);
    cluster.devices[1].share = 0; /* who is not to be used takes nothing from the others */
    problem = problem_of();
    assert_true(problem.devices[0].memory_free_bytes == 32 * gib);
    cluster_problem_deinit(&problem);
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Two cards of which one holds 6 layers, a laptop that is slow, a machine whose link is down,
 * and one that is alone. */
static const char home[] =
    "{\"nodes\":[{\"name\":\"tower\",\"devices\":["
    "{\"id\":\"cuda0\",\"memory\":\"7GiB\",\"reserve\":\"0B\",\"bandwidth\":\"1000GB/"
    "s\",\"flops\":\"20TFLOP/s\"},"
    "{\"id\":\"cpu\",\"memory\":\"1GiB\",\"bandwidth\":\"40GB/s\"}]},"
    "{\"name\":\"studio\",\"devices\":[" MEASURED(
        "metal0", "200e9",
        "\"kind\":\"integrated gpu\",") "]},"
                                        "{\"name\":\"laptop\",\"devices\":[{\"id\":\"cpu\","
                                        "\"memory\":\"16GiB\"}]},"
                                        "{\"name\":\"nuc\",\"devices\":[{\"id\":\"vulkan0\","
                                        "\"memory\":\"3GiB\","
                                        "\"bandwidth\":\"900GB/s\"}]},"
                                        "{\"name\":\"alone\",\"devices\":[{\"id\":\"cpu\","
                                        "\"memory\":\"3GiB\","
                                        "\"bandwidth\":\"900GB/s\"}]}],"
                                        "\"links\":[{\"between\":[\"tower\",\"studio\"],\"class\":"
                                        "\"ethernet\","
                                        "\"latency_ms\":0.2,\"bandwidth\":\"2.5Gb/s\"},"
                                        "{\"between\":[\"studio\",\"laptop\"],\"class\":\"wifi\"},"
                                        "{\"between\":[\"tower\",\"nuc\"],\"up\":false}]}";

static struct report report_of(void)
{
    struct report report;
    struct error err = {0};
    if (report_init(&report, &ask, &err))
        fail_msg("%s", err.text);
    return report;
}

static void expect_text(const struct report *report, bool explain, const char *expected)
{
    struct buffer text = {0};
    report_text(report, explain, &text);
    assert_false(text.failed);
    assert_string_equal(text.data, expected);
    buffer_deinit(&text);
}

static void expect_part(const struct report *report, bool explain, const char *part)
{
    struct buffer text = {0};
    report_text(report, explain, &text);
    assert_false(text.failed);
    if (!strstr(text.data, part))
        fail_msg("no '%s' in:\n%s", part, text.data);
    buffer_deinit(&text);
}

/* By hand: 6 GiB at 0.7 x 1000 GB/s, 4 GiB at 200 GB/s, the KV cache's half, 0.1 and 0.05 ms of
 * launching; 0.2 ms and 16 KiB at 312.5 MB/s, and 0.2 ms back: 9.4 + 21.7 + 0.25 + 0.2 ms. */
static void the_text(void **state)
{
    use(home);
    struct report report = report_of();
    expect_text(
        &report, false,
        "ten: 10 layers, 10.0 GiB; context 4096, 1 stream, KV cache f16\n"
        "Best, by estimate: 2 devices, 31.7 tok/s decode, 248.7 tok/s prefill      proved optimal\n"
        "  stage 0  tower/cuda0    layers 0–5    6.3 GiB of 7.0 GiB      9.4 ms\n"
        "  stage 1  studio/metal0  layers 6–9    4.3 GiB of 16.0 GiB    21.7 ms   link 0.25 ms "
        "(ethernet 2.5 Gb/s)\n"
        "Bottleneck: studio/metal0's memory bandwidth (69 % of a token's time)\n"
        "Left out: tower/cpu: 960.0 MiB for it, buffers and a layer need 1.3 GiB.\n"
        "          laptop/cpu: would cost 71.4 ms per token for 1 layer.\n"
        "          nuc/vulkan0: link to tower is down.\n"
        "          alone/cpu: no link to a device in use.\n"
        "Without tower: 18.5 tok/s   Without studio: 3.30 tok/s\n"
        "Not measured, but reckoned from a datasheet: tower/cuda0.\n"
        "`medley devices --calibrate` on that machine and the output of `medley devices --json` as "
        "its\n"
        "\"devices\" in the file make a forecast of it.\n");
    expect_part(&report, true, "Decoding is forecast with the context half full: 2048 tokens");
    expect_part(&report, true,
                "  tower/cuda0  7.0 GiB, 0 B kept free; datasheet: f32 700 GB/s 1e+04 GFLOP/s");
    expect_part(&report, true, "Links:\n5 nodes, 6 links: 4 usable, 2 down");
    report_deinit(&report);
    strcpy(model.type_names[1], "q6_K");
    report = report_of();
    expect_part(
        &report, false,
        "Measured with other types of weights, of which the slowest counts: studio/metal0.\n");
    report_deinit(&report);
}

static void the_same_numbers_as_the_forecast(void **state)
{
    use(home);
    struct report report = report_of();
    struct buffer json = {0};
    report_json(&report, &json);
    assert_false(json.failed);
    yyjson_doc *doc = yyjson_read(json.data, json.size, 0);
    assert_non_null(doc);
    near(yyjson_get_real(yyjson_doc_ptr_get(doc, "/best/decode_tokens_per_s")),
         report.forecast.decode_tokens_per_s);
    near(yyjson_get_real(yyjson_doc_ptr_get(doc, "/best/stages/1/decode_s")),
         report.forecast.stages[1].decode_s);
    assert_true(yyjson_equals_str(yyjson_doc_ptr_get(doc, "/outcome"), "placed"));
    assert_true(yyjson_equals_str(yyjson_doc_ptr_get(doc, "/best/bottleneck/limit"), "bandwidth"));
    assert_true(yyjson_equals_str(yyjson_doc_ptr_get(doc, "/devices/4/state"), "no_link"));
    assert_true(yyjson_is_null(yyjson_doc_ptr_get(doc, "/best/solve_s")));
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/devices")), 6);
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/what_if")), report.whatifs.n);
    yyjson_doc_free(doc);
    buffer_deinit(&json);
    report_deinit(&report);
}

static void extras_policies_and_without(void **state)
{
    use(home);
    struct error err = {0};
    ask.n_extras = 1;
    ask.extras[0].words = "16GiB,1000GB/s";
    assert_int_equal(cluster_device_parse(ask.extras[0].words, &ask.extras[0].device, &err),
                     ERROR_NONE);
    strcpy(ask.extras[0].device.id, "added device");
    for (int i = 0; i < REPORT_POLICIES; i++)
        ask.policies[i] = true;
    ask.n_without = 1;
    ask.without[0] = "laptop";
    struct report report = report_of();
    const struct placement_rates *extra = &report.extras[0];
    assert_int_equal(extra->answer, PLACEMENT_POSSIBLE);
    assert_true(extra->decode_tokens_per_s > 1.5 * report.forecast.decode_tokens_per_s);
    expect_part(&report, false, "If you add 16GiB,1000GB/s to tower: 63.9 tok/s (an estimate)");
    expect_part(&report, false, "laptop/cpu: not to be used.");
    expect_part(&report, false, "By memory (exo, llama.cpp): ");
    for (int i = 0; i < REPORT_POLICIES; i++) {
        const struct report_policy *policy = &report.policies[i];
        assert_true(policy->asked);
        if (policy->found)
            assert_true(policy->forecast.decode_tokens_per_s <=
                        report.forecast.decode_tokens_per_s * (1 + 1e-9));
    }
    report_deinit(&report);
    ask.without[0] = "nobody";
    assert_int_equal(report_init(&report, &ask, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "there is no node 'nobody'"));
}

/* What `medley run` logs of its plan is what `medley plan` says. */
static void a_placement_found_elsewhere(void **state)
{
    use("{\"nodes\":[{\"name\":\"here\",\"devices\":[" MEASURED("cuda0", "100e9", "") "," MEASURED(
        "cuda1", "90e9", "") "]}]}");
    ask.here = true;
    ask.model_name = NULL;
    struct report report = report_of();
    struct buffer all = {0}, text = {0};
    report_text(&report, false, &all);
    report_placement_text(&cluster, &report.cluster_problem, &report.solution, &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.data, "Best: 1 device, "));
    assert_non_null(strstr(text.data, "Bottleneck: cuda0's memory bandwidth"));
    assert_non_null(strstr(text.data, "Left out: cuda1: would "));
    assert_memory_equal(all.data, text.data, strcspn(text.data, "L")); /* up to "Left out" */
    buffer_deinit(&all);
    buffer_deinit(&text);
    report_deinit(&report);
}

static void a_guess_says_so(void **state)
{
    use("{\"nodes\":[{\"name\":\"here\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"32GiB\"}]}]}");
    ask.here = true;
    struct report report = report_of();
    expect_part(&report, false, "Best, by a guess: 1 device, 1.39 tok/s decode, prefill unknown");
    expect_part(&report, false,
                "Not measured; the speed is a guess by the kind of device: cpu.\n"
                "`medley devices --calibrate` measures");
    report_deinit(&report);
}

/* Without the faster one the other has the memory that they share. */
static void without_one_of_two_in_one_memory(void **state)
{
    use("{\"nodes\":[{\"name\":\"a\",\"memory\":\"32GiB\",\"devices\":[{\"id\":\"cpu\"},"
        "{\"id\":\"igpu\",\"kind\":\"integrated gpu\",\"bandwidth\":\"100GB/s\"}]}]}");
    struct report report = report_of();
    assert_int_equal(report.whatifs.n, 2);
    assert_int_equal(report.whatifs.list[0].rates.answer, PLACEMENT_IMPOSSIBLE);
    assert_string_equal(report.whatifs.list[1].device, "igpu");
    assert_int_equal(report.whatifs.list[1].rates.answer, PLACEMENT_POSSIBLE);
    expect_part(&report, false, "Left out: a/cpu: shares the memory of a/igpu, which is faster.");
    report_deinit(&report);
}

static void what_fits_nowhere(void **state)
{
    use("{\"nodes\":[{\"name\":\"a\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"10.5GiB\","
        "\"reserve\":\"0B\"}]}]}");
    ask.demand.context_tokens = 65536;
    struct report report = report_of();
    assert_int_equal(report.outcome, ERROR_NOT_FOUND);
    expect_part(&report, false, "It fits nowhere: ");
    expect_part(&report, false, "a context of ");
    struct buffer json = {0};
    report_json(&report, &json);
    yyjson_doc *doc = yyjson_read(json.data, json.size, 0);
    assert_true(yyjson_equals_str(yyjson_doc_ptr_get(doc, "/outcome"), "infeasible"));
    assert_true(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/infeasible/remedies")) >= 2);
    yyjson_doc_free(doc);
    buffer_deinit(&json);
    report_deinit(&report);
}

/* Every number of micro-batches was tried: none that has a stage for each gives more. */
static void micro_batches_as_the_driver_runs_them(void **state)
{
    use("{\"nodes\":[{\"name\":\"a\",\"devices\":[" MEASURED("cuda0", "100e9", "") "," MEASURED(
        "cuda1", "100e9", "") "," MEASURED("cuda2", "20e9", "") "]}]}");
    ask.demand.streams = 6;
    ask.demand.goal = PLACEMENT_THROUGHPUT;
    struct report report = report_of();
    const double best = report.forecast.decode_tokens_per_s;
    assert_int_equal(report.solution.placement.n_stages, 2);
    assert_int_equal(report.cluster_problem.problem.demand.micro_batches, 2);
    assert_true(report.solution.proved);
    report_deinit(&report);
    uint32_t n_compared = 0;
    for (uint32_t m = 1; m <= 6; m++) {
        ask.demand.micro_batches = m;
        report = report_of();
        if (report.solution.placement.n_stages == m) {
            assert_true(report.forecast.decode_tokens_per_s <= best * (1 + 1e-9));
            n_compared++;
        }
        report_deinit(&report);
    }
    assert_true(n_compared >= 1);
}

static void several_groups_are_told(void **state)
{
    static const char two[] = "{\"nodes\":[{\"name\":\"a\",\"devices\":[" MEASURED(
        "cuda0", "100e9",
        "") "]},{\"name\":\"b\",\"devices\":[" MEASURED("cuda0", "100e9",
                                                        "") "]}],"
                                                            "\"links\":[{\"from\":\"a\",\"to\":"
                                                            "\"b\",\"latency_ms\":5,"
                                                            "\"bandwidth\":\"1Gb/s\"}]}";
    use(two);
    ask.demand.streams = 4;
    ask.demand.goal = PLACEMENT_THROUGHPUT;
    struct report report = report_of();
    assert_false(report.divided); /* not asked for */
    report_deinit(&report);
    ask.demand.replicas = true;
    report = report_of();
    assert_true(report.divided && report.replicas.proved && report.replicas.groups.n_groups == 2);
    assert_true(report.replicas.rate > report.forecast.decode_tokens_per_s);
    expect_part(&report, false, "As 2 groups, each with the whole model: ");
    expect_part(&report, false, "times as fast; proved the best division\n group 0: 2 streams, ");
    expect_part(&report, false,
                "(Medley runs one group, the one above this; several it only forecasts.)");
    expect_part(&report, true,
                "Several groups: in bytes alone all memory holds the model 3 times; ");
    struct buffer json = {0};
    report_json(&report, &json);
    yyjson_doc *doc = yyjson_read(json.data, json.size, 0);
    assert_int_equal(yyjson_arr_size(yyjson_doc_ptr_get(doc, "/groups/list")), 2);
    assert_true(yyjson_is_true(yyjson_doc_ptr_get(doc, "/groups/faster")));
    assert_true(yyjson_is_false(yyjson_doc_ptr_get(doc, "/groups/run")));
    near(yyjson_get_real(yyjson_doc_ptr_get(doc, "/groups/list/0/decode_tokens_per_s")) +
             yyjson_get_real(yyjson_doc_ptr_get(doc, "/groups/list/1/decode_tokens_per_s")),
         report.replicas.rate);
    yyjson_doc_free(doc);
    buffer_deinit(&json);
    report_deinit(&report);
    model.layers = layers; /* twice as large: it fits once */
    for (int i = 0; i < LAYERS; i++)
        layers[i].bytes[1] = layers[i].bytes_per_token[1] = UINT64_C(2) << 30;
    report = report_of();
    assert_int_equal(report.replicas.groups.n_groups, 1);
    expect_part(&report, true,
                "Several groups: all memory together does not hold the model twice.\n");
    report_deinit(&report);
}

static double time_s;
static double ticking(void *self)
{
    (void)self;
    return time_s += 1e-3;
}

static void bottlenecks(void **state)
{
    static const struct {
        const char *more, *link;
        uint32_t streams;
        enum placement_goal goal;
        enum report_limit limit;
    } cases[] = {
        {"\"launch\":\"10ms\",", "\"latency_ms\":100,\"bandwidth\":\"10Gb/s\"", 1,
         PLACEMENT_LATENCY, REPORT_BY_LINK},
        {"\"launch\":\"500ms\",", "\"latency_ms\":1,\"bandwidth\":\"10Gb/s\"", 1, PLACEMENT_LATENCY,
         REPORT_BY_LAUNCH},
        {"", "\"latency_ms\":1,\"bandwidth\":\"10Gb/s\"", 16, PLACEMENT_LATENCY, REPORT_BY_COMPUTE},
        {"", "\"latency_ms\":90,\"bandwidth\":\"10Gb/s\"", 2, PLACEMENT_THROUGHPUT,
         REPORT_BY_STREAMS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"nodes\":[{\"name\":\"a\",\"devices\":[{\"id\":\"gpu0\",%s\"memory\":\"9GiB\","
                 "\"bandwidth\":"
                 "\"1000GB/s\",\"flops\":\"3TFLOP/"
                 "s\"}]},{\"name\":\"b\",\"devices\":[{\"id\":\"gpu0\",%s\"memory\":\"9GiB\","
                 "\"bandwidth\":\"1000GB/s\",\"flops\":\"3TFLOP/"
                 "s\"}]}],\"links\":[{\"between\":[\"a\",\"b\"],%s}]}",
                 cases[i].more, cases[i].more, cases[i].link);
        use(text);
        ask.demand.streams = cases[i].streams;
        ask.demand.goal = cases[i].goal;
        ask.now_s = ticking;
        ask.limit_s = 1000;
        struct report report = report_of();
        if (report.outcome || report.bottleneck.limit != cases[i].limit)
            fail_msg("case %zu: limit %d", i, (int)report.bottleneck.limit);
        assert_true(report.bottleneck.part > 0 && report.bottleneck.part <= 1);
        assert_true(report.solve_s > 0);
        expect_part(&report, false, "proved optimal in ");
        report_deinit(&report);
    }
}

/* Links unlike each other, so that the bound is not met, and no time to search. */
static void more_devices_than_are_searched(void **state)
{
    enum { MANY = LIMIT_PLACEMENT_EXACT_DEVICES + 6 };
    struct buffer text = {0};
    buffer_text(&text, "{\"nodes\":[");
    for (int i = 0; i < MANY; i++)
        buffer_printf(&text,
                      "%s{\"name\":\"n%d\",\"devices\":[{\"id\":\"gpu0\",\"memory\":\"%dGiB\","
                      "\"bandwidth\":\"%dGB/s\",\"flops\":\"3TFLOP/s\"}]}",
                      i ? "," : "", i, 3 + i % 3, 100 + 17 * i % 300);
    buffer_text(&text, "],\"links\":[");
    for (int i = 1; i < MANY; i++)
        for (int j = 0; j < i; j++)
            buffer_printf(&text,
                          "%s{\"between\":[\"n%d\",\"n%d\"],\"latency_ms\":%d,"
                          "\"bandwidth\":\"1Gb/s\"}",
                          i > 1 ? "," : "", i, j, 1 + (i * 31 + j * 17) % 40);
    buffer_printf(&text, "]}%c", 0);
    use(text.data);
    ask.now_s = ticking;
    ask.limit_s = 0.02;
    struct report report = report_of();
    assert_true(!report.outcome && !report.solution.proved);
    expect_part(&report, false, "Of 70 devices, the search looks at the 64 that are cheapest");
    report_deinit(&report);
    buffer_deinit(&text);
}

static void no_memory(void **state)
{
    use(home);
    ask.n_extras = 1;
    ask.extras[0].words = "rtx-3060";
    assert_int_equal(cluster_device_parse("rtx-3060", &ask.extras[0].device, NULL), ERROR_NONE);
    ask.policies[0] = true;
    unsigned n_failed = 0;
    for (unsigned nth = 1; nth < 5000; nth++) {
        struct report report;
        struct error err = {0};
        mem_fail_nth(nth);
        const enum error_code code = report_init(&report, &ask, &err);
        mem_fail_nth(0);
        if (!code) {
            report_deinit(&report);
            break;
        }
        assert_int_equal(code, ERROR_NO_MEMORY);
        assert_true(err.text[0] && !report.reasons && !report.cluster_problem.devices);
        n_failed++;
    }
    assert_true(n_failed > 20 && n_failed < 4900);
}

static int tidy(void **state)
{
    cluster_deinit(&cluster);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_and_links),
        cmocka_unit_test(a_lossy_link_is_a_line_through_both_sizes),
        cmocka_unit_test(one_memory_is_counted_once),
        cmocka_unit_test(the_text),
        cmocka_unit_test(the_same_numbers_as_the_forecast),
        cmocka_unit_test(extras_policies_and_without),
        cmocka_unit_test(a_placement_found_elsewhere),
        cmocka_unit_test(a_guess_says_so),
        cmocka_unit_test(without_one_of_two_in_one_memory),
        cmocka_unit_test(what_fits_nowhere),
        cmocka_unit_test(micro_batches_as_the_driver_runs_them),
        cmocka_unit_test(several_groups_are_told),
        cmocka_unit_test(bottlenecks),
        cmocka_unit_test(more_devices_than_are_searched),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, tidy);
}
