/* From an open model to the placement's: sums are the model's costs, and memory is what the engine
 * takes. */
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "placement/cost.h"
#include "plan/plan_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gpu *gpu;
static struct device *cpu;

static int open_cpu(void **state)
{
    (void)state;
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 2, .skip_other = true};
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    cpu = gpu_find(gpu, "cpu");
    return 0;
}

static int close_cpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

static const char *const names[] = {"llama",     "llama-q4_0", "llama-q4k",  "qwen2-tied",
                                    "qwen3",     "qwen3-f16",  "gemma2",     "gemma3",
                                    "llama-moe", "gpt-oss",    "llama-yarn", "phi3-longrope"};
enum { NAMES = sizeof names / sizeof *names };

static struct model *open_model(const char *name)
{
    char path[512];
    struct model *model;
    struct error err = {0};
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    assert_non_null(getenv("MEDLEY_ROOT"));
    if (strcmp(name, "demo") == 0)
        snprintf(path, sizeof path, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    else
        snprintf(path, sizeof path, "%s/%s%s.gguf", getenv("MEDLEY_GOLDEN"),
                 strchr(name, '/') ? "" : "models/", name);
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

static struct driver_options options_of(const struct model *model, struct driver_options given)
{
    struct driver_options options;
    struct error err = {0};
    if (driver_options_fill(&given, model, &options, &err))
        fail_msg("%s", err.text);
    return options;
}

static struct plan_model plan_of(const struct model *model, const struct driver_options *options,
                                 bool embedding_counts)
{
    struct plan_compute compute;
    struct plan_model plan;
    struct error err = {0};
    if (plan_compute_measure(cpu, model, options, &compute, &err) ||
        plan_model_init(&plan, model, options, &compute, embedding_counts, &err))
        fail_msg("%s", err.text);
    return plan;
}

/* ---- costs ---------------------------------------------------------------------------- */

static void check_sums(const struct placement_model *model, const struct placement_layer *layer,
                       struct layer_cost cost)
{
    uint64_t bytes = 0, bytes_per_token = 0;
    double flops = 0;
    for (uint32_t i = 0; i < PLACEMENT_TYPES_MAX; i++) {
        bytes += layer->bytes[i];
        bytes_per_token += layer->bytes_per_token[i];
        flops += layer->flops_per_token[i];
        if (i >= model->n_types)
            assert_int_equal(layer->bytes[i], 0);
    }
    assert_int_equal(bytes, cost.bytes);
    assert_int_equal(bytes_per_token, cost.bytes_per_token);
    assert_true(flops == (double)cost.flops_per_token);
    assert_true(layer->flops_per_token_per_context == (double)cost.flops_per_token_per_context);
}

static void test_sums_are_the_models_costs(void **state)
{
    (void)state;
    for (int n = 0; n <= NAMES; n++) {
        struct model *model = open_model(n < NAMES ? names[n] : "demo");
        const struct driver_options options =
            options_of(model, (struct driver_options){.kv_type = KV_F16});
        struct plan_model plan = plan_of(model, &options, true);
        assert_int_equal(plan.model.n_layers, model_hyperparameters(model)->n_layers);
        assert_ptr_equal(plan.model.layers, plan.layers);
        for (uint32_t i = 0; i < plan.model.n_layers; i++) {
            const struct layer_cost cost = model_layer_cost(model, i);
            check_sums(&plan.model, &plan.layers[i], cost);
            assert_int_equal(plan.layers[i].kv_bytes_per_token, 2 * cost.kv_elements_per_token);
        }
        check_sums(&plan.model, &plan.model.input, model_input_cost(model));
        check_sums(&plan.model, &plan.model.output, model_output_cost(model));
        assert_int_equal(plan.model.activation_bytes_per_token,
                         4 * model_hyperparameters(model)->n_embd);
        plan_model_deinit(&plan);
        model_close(model);
    }
}

static uint32_t type_index(const struct placement_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->n_types; i++) {
        if (strcmp(model->type_names[i], name) == 0)
            return i;
    }
    fail_msg("no type %s", name);
    return 0;
}

static void test_types_are_told_apart(void **state)
{
    (void)state;
    struct model *model = open_model("llama-q4_0");
    const struct driver_options options = options_of(model, (struct driver_options){0});
    struct plan_model plan = plan_of(model, &options, false);
    const uint32_t f32 = type_index(&plan.model, "f32"), q4 = type_index(&plan.model, "q4_0");
    uint64_t norms = model_tensor(model, TENSOR_ATTENTION_NORM, 0)->size +
                     model_tensor(model, TENSOR_FFN_NORM, 0)->size;
    assert_int_equal(plan.layers[0].bytes[f32], norms);
    assert_int_equal(plan.layers[0].bytes[q4], model_layer_cost(model, 0).bytes - norms);
    for (uint32_t i = 0; i < plan.model.n_types; i++) /* the host's */
        assert_int_equal(plan.model.input.bytes[i], 0);
    plan_model_deinit(&plan);
    model_close(model);
}

/* The head is a copy of its own, whoever holds the embedding. */
static void test_a_tied_embedding_is_stored_twice(void **state)
{
    (void)state;
    struct model *model = open_model("qwen2-tied");
    const struct driver_options options = options_of(model, (struct driver_options){0});
    struct plan_model plan = plan_of(model, &options, true);
    const uint64_t embedding = model_tensor(model, TENSOR_TOKEN_EMBEDDING, 0)->size;
    assert_null(model_tensor(model, TENSOR_OUTPUT, 0));
    const uint32_t type = type_index(
        &plan.model, gguf_tensor_type_name(model_tensor(model, TENSOR_TOKEN_EMBEDDING, 0)));
    assert_int_equal(plan.model.input.bytes[type], embedding);
    assert_in_range(plan.model.output.bytes[type], embedding, embedding + 4096);
    assert_int_equal(plan.model.tied_bytes, 0);
    plan_model_deinit(&plan);
    model_close(model);
}

static void test_a_mixture_reads_its_share(void **state)
{
    (void)state;
    struct model *model = open_model("llama-moe");
    const struct hyperparameters *h = model_hyperparameters(model);
    const struct driver_options options =
        options_of(model, (struct driver_options){.kv_type = KV_F32, .n_slots = 4});
    struct plan_model plan = plan_of(model, &options, false);
    assert_true(h->n_experts_used < h->n_experts);
    assert_true(plan.model.expert_share == (double)h->n_experts_used / h->n_experts);
    const uint32_t type =
        type_index(&plan.model, gguf_tensor_type_name(model_tensor(model, TENSOR_EXPERTS_UP, 0)));
    assert_true(plan.layers[0].bytes_per_token[type] < plan.layers[0].bytes[type]);
    assert_int_equal(plan.layers[0].kv_bytes_per_token,
                     4 * model_layer_cost(model, 0).kv_elements_per_token);
    assert_int_equal(plan_demand(&options).goal, PLACEMENT_THROUGHPUT);
    assert_int_equal(plan_demand(&options).streams, 4);
    plan_model_deinit(&plan);
    model_close(model);
}

/* ---- memory: what the engine itself says of a stage ------------------------------------- */

static uint64_t engine_bytes(const struct model *model, const struct driver_options *options,
                             const struct placement_stage *stage)
{
    const struct stage_options asked = {.first_layer = stage->first_layer,
                                        .n_layers = stage->n_layers,
                                        .n_slots = options->n_slots,
                                        .context = options->context,
                                        .rows_max = options->batch_rows,
                                        .kv_type = options->kv_type,
                                        .flash = options->flash};
    struct stage_memory memory;
    struct error err = {0};
    if (stage_measure(cpu, model, &asked, &memory, &err))
        fail_msg("%s", err.text);
    return memory.weights + memory.kv + memory.compute;
}

/* Caches, copies of caches and states of every run of layers, to the byte. */
static void check_caches(const char *name, struct driver_options given)
{
    struct model *model = open_model(name);
    const struct driver_options options = options_of(model, given);
    struct plan_model plan = plan_of(model, &options, true);
    const struct placement_problem problem = {.model = plan.model, .demand = plan_demand(&options)};
    for (uint32_t first = 0; first < plan.model.n_layers; first++) {
        for (uint32_t end = first + 1; end <= plan.model.n_layers; end++) {
            const struct stage_options asked = {.first_layer = first,
                                                .n_layers = end - first,
                                                .n_slots = options.n_slots,
                                                .context = options.context,
                                                .rows_max = options.batch_rows,
                                                .checkpoints = options.checkpoints,
                                                .kv_type = options.kv_type};
            struct stage_memory memory;
            uint64_t planned = placement_copy_bytes(&problem, first, end);
            for (uint32_t i = first; i < end; i++)
                planned += placement_kv_bytes(&plan.layers[i], &problem.demand) +
                           placement_state_bytes(&plan.layers[i], &problem.demand);
            assert_int_equal(stage_measure(cpu, model, &asked, &memory, NULL), ERROR_NONE);
            if (memory.kv != planned)
                fail_msg("%s: caches of layers %u-%u take %llu bytes, planned %llu", name, first,
                         end - 1, (unsigned long long)memory.kv, (unsigned long long)planned);
        }
    }
    plan_model_deinit(&plan);
    model_close(model);
}

static void test_caches_are_counted_exactly(void **state)
{
    (void)state;
    const struct driver_options some = {
        .context = 512, .n_slots = 2, .batch_rows = 64, .checkpoints = 5};
    check_caches("more/models/gemma4", some);
    check_caches("more/models/qwen3next", some);
    check_caches("more/models/granitehybrid", some);
    check_caches("more/models/deepseek4", some);
    check_caches("gemma3", some);
}

static uint32_t n_promised; /* models of which a shorter context is known to need less buffers */

/* Never less than the engine takes but for the padding between tensors, and little more: the ends
 * are measured one by one, and a stage that has both reuses the memory; a model of few layers is
 * measured whole, and a single layer needs less than several. */
static void check_memory(const char *name, struct driver_options given)
{
    struct model *model = open_model(name);
    const struct driver_options options = options_of(model, given);
    struct plan_model plan = plan_of(model, &options, true);
    const struct placement_problem problem = {.model = plan.model, .demand = plan_demand(&options)};
    const uint32_t n = plan.model.n_layers;
    assert_int_equal(problem.demand.context_tokens, kv_cells(options.context));
    const struct placement_stage stages[] = {
        {0, 0, n}, {0, 0, 1}, {0, n - 1, 1}, {0, 0, n - 1}, {0, 1, n - 1}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const uint64_t takes = engine_bytes(model, &options, &stages[i]);
        const uint64_t planned = placement_stage_bytes(&problem, &stages[i]);
        const uint64_t padding = 64 * UINT64_C(32) * (n + 1);
        const bool is_small = n <= 3 || n <= model_hyperparameters(model)->window_period + 1;
        const uint64_t small = is_small || stages[i].n_layers == 1 ? plan.model.compute_bytes : 0;
        const uint64_t more = plan.model.compute_input_bytes + plan.model.compute_output_bytes +
                              takes / 20 + padding + small;
        if (planned + padding < takes || planned > takes + more)
            fail_msg("%s: layers %u-%u take %llu bytes, planned %llu", name, stages[i].first_layer,
                     stages[i].first_layer + stages[i].n_layers - 1, (unsigned long long)takes,
                     (unsigned long long)planned);
    }
    /* What is promised of a shorter context is kept; in the smallest graphs other tensors are
     * larger by some KiB. */
    struct driver_options less = options;
    less.context = options.context / 2;
    struct plan_model shorter = plan_of(model, &less, true);
    const uint64_t fewer = kv_cells(options.context) - kv_cells(less.context);
    assert_true(fewer > 0);
    n_promised += plan.model.compute_bytes_per_context > 0;
    assert_true(shorter.model.compute_bytes <= plan.model.compute_bytes -
                                                   plan.model.compute_bytes_per_context * fewer +
                                                   32 * UINT64_C(1024));
    plan_model_deinit(&shorter);
    plan_model_deinit(&plan);
    model_close(model);
}

static void test_memory_is_what_the_engine_takes(void **state)
{
    (void)state;
    for (int n = 0; n <= NAMES; n++) {
        const char *name = n < NAMES ? names[n] : "demo";
        check_memory(name, (struct driver_options){.context = 1000, .batch_rows = 256});
        check_memory(name, (struct driver_options){
                               .context = 300, .n_slots = 3, .batch_rows = 64, .kv_type = KV_F32});
        check_memory(
            name, (struct driver_options){.context = 1000, .batch_rows = 256, .flash = FLASH_OFF});
    }
    assert_true(n_promised > 0);
    check_memory("more/models/deepseek4",
                 (struct driver_options){.context = 1000, .batch_rows = 256});
}

/* Without a device: enough, and not absurdly much, but for the masks, which the CPU's attention
 * does without. */
static void check_estimate(const char *name, struct driver_options given)
{
    struct model *model = open_model(name);
    const struct driver_options options = options_of(model, given);
    struct plan_compute measured, estimate;
    struct error err = {0};
    if (plan_compute_measure(cpu, model, &options, &measured, &err))
        fail_msg("%s", err.text);
    plan_compute_estimate(model, &options, &estimate);
    const uint64_t slack = 64 * 1024, whole = measured.stage + measured.input + measured.output;
    const uint64_t guess = estimate.stage + estimate.input + estimate.output;
    const uint64_t cells = kv_cells(options.context);
    const uint32_t window = model_hyperparameters(model)->window;
    const uint64_t ring = kv_window_cells(window, options.batch_rows, options.context);
    const uint64_t ring_mask = ring < cells ? 2 * ring * options.batch_rows : 0;
    const uint64_t masks =
        options.flash == FLASH_OFF
            ? 0
            : plan_compute_per_cell(&estimate, model, &options) * cells + ring_mask;
    if (getenv("MEDLEY_PLAN_PRINT"))
        print_message("# %s: %llu+%llu+%llu measured, %llu+%llu+%llu estimated\n", name,
                      (unsigned long long)measured.stage, (unsigned long long)measured.input,
                      (unsigned long long)measured.output, (unsigned long long)estimate.stage,
                      (unsigned long long)estimate.input, (unsigned long long)estimate.output);
    if (estimate.stage + slack < measured.stage || guess + slack < whole ||
        guess > 3 * whole + masks + slack)
        fail_msg("%s: compute %llu and %llu in all, estimated %llu and %llu", name,
                 (unsigned long long)measured.stage, (unsigned long long)whole,
                 (unsigned long long)estimate.stage, (unsigned long long)guess);
    model_close(model);
}

static void test_the_estimate_is_near_the_engines(void **state)
{
    (void)state;
    for (int n = 0; n <= NAMES; n++) {
        const char *name = n < NAMES ? names[n] : "demo";
        check_estimate(name, (struct driver_options){.context = 1000, .batch_rows = 512});
        check_estimate(
            name, (struct driver_options){.context = 1000, .batch_rows = 256, .flash = FLASH_OFF});
        check_estimate(name,
                       (struct driver_options){.context = 300, .n_slots = 3, .batch_rows = 64});
    }
    check_estimate("more/models/deepseek4",
                   (struct driver_options){.context = 1000, .batch_rows = 512});
}

static void test_lack_of_memory_is_an_error(void **state)
{
    (void)state;
    struct model *model = open_model("llama");
    const struct driver_options options = options_of(model, (struct driver_options){0});
    const struct plan_compute none = {0};
    struct plan_model plan;
    struct error err = {0};
    mem_fail_nth(1);
    assert_int_equal(plan_model_init(&plan, model, &options, &none, false, &err), ERROR_NO_MEMORY);
    mem_fail_nth(0);
    plan_model_deinit(&plan);
    plan_model_deinit(NULL);
    model_close(model);
}

static void test_a_device_that_refuses_says_why(void **state)
{
    (void)state;
    struct model *model = open_model("llama");
    const struct driver_options wrong = {.n_slots = 1, .context = 100, .batch_rows = 100000};
    struct plan_compute compute;
    struct error err = {0};
    assert_int_equal(plan_compute_measure(cpu, model, &wrong, &compute, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "rows"));
    model_close(model);
}

/* A windowed layer reads and computes its window, however long the context is. */
static void test_windows_take_their_time(void **state)
{
    (void)state;
    struct model *model = open_model("gemma3");
    const struct hyperparameters *h = model_hyperparameters(model);
    const struct driver_options options =
        options_of(model, (struct driver_options){.context = 32768});
    struct plan_model plan = plan_of(model, &options, false);
    struct placement_device device = {.memory_free_bytes = PLACEMENT_BYTES_MAX, .share = 1};
    struct placement_link link = {0};
    for (uint32_t i = 0; i < plan.model.n_types; i++)
        device.decode_bytes_per_s[i] = device.prefill_flops[i] = 1e6;
    const struct placement_problem problem = {.n_devices = 1,
                                              .devices = &device,
                                              .links = &link,
                                              .model = plan.model,
                                              .demand = plan_demand(&options)};
    const struct placement_load shorter = {1, 1, 2.0 * h->window}, longer = {1, 1, 16384},
                                prompt = {64, 1, 2.0 * h->window}, later = {64, 1, 16384};
    uint32_t n_windowed = 0;
    assert_true(h->window && 2 * h->window < 16384);
    for (uint32_t i = 1; i + 1 < h->n_layers; i++) { /* without the ends */
        const bool is_windowed = hyperparameters_layer_windowed(h, i);
        const double grows = placement_layer_s(&problem, 0, i, longer) -
                             placement_layer_s(&problem, 0, i, shorter),
                     all = (16384 - 2.0 * h->window) * (double)plan.layers[i].kv_bytes_per_token /
                           1e6;
        assert_true(fabs(grows - (is_windowed ? 0 : all)) < 1e-6 * all);
        assert_true((placement_layer_s(&problem, 0, i, later) >
                     placement_layer_s(&problem, 0, i, prompt)) == !is_windowed);
        n_windowed += is_windowed;
    }
    assert_true(n_windowed > 0 && n_windowed < h->n_layers - 2);
    plan_model_deinit(&plan);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_the_models_costs),
        cmocka_unit_test(test_types_are_told_apart),
        cmocka_unit_test(test_windows_take_their_time),
        cmocka_unit_test(test_a_tied_embedding_is_stored_twice),
        cmocka_unit_test(test_a_mixture_reads_its_share),
        cmocka_unit_test(test_caches_are_counted_exactly),
        cmocka_unit_test(test_memory_is_what_the_engine_takes),
        cmocka_unit_test(test_the_estimate_is_near_the_engines),
        cmocka_unit_test(test_lack_of_memory_is_an_error),
        cmocka_unit_test(test_a_device_that_refuses_says_why),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
