/* medley bench: how fast a model reads and writes here, in the shape of llama-bench. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/options.h"
#include "cli/session.h"
#include "gpu/device_ggml.h" /* the CPU device's thread count is told nowhere else */
#include "model/model.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley bench MODEL.gguf [-p N] [-n N] [-r N] [-s N] [--json] [options]\n"
    "\n"
    "Measures tokens per second: ppN reads a prompt of N random tokens in micro-batches of "
    "--batch\n"
    "rows, tgN writes N tokens from an empty context. The mean and the standard deviation over "
    "the\n"
    "repetitions are given; one run of each that is not counted goes before.\n"
    "\n";

struct bench_flags {
    struct session_flags session;
    const char *model;
    uint32_t n_prompt, n_predict, n_repetitions, n_streams;
    bool json;
};

enum { REPETITIONS_MAX = 1000 };

struct measurement {
    char test[32];
    double mean, deviation; /* tokens per second */
};

/* ---- words ---------------------------------------------------------------------------- */

static const struct option_row own_options[] = {
    {.letter = 'p',
     .alias = "prompt",
     .value = "N",
     .standard = "512",
     .help = "tokens of the prompt (default %s; 0: leave it out)",
     OPTION_U32(struct bench_flags, n_prompt, 0, LIMIT_CONTEXT - 1)},
    {.letter = 'n',
     .alias = "predict",
     .value = "N",
     .standard = "128",
     .help = "tokens to generate (default %s; 0: leave it out)",
     OPTION_U32(struct bench_flags, n_predict, 0, LIMIT_CONTEXT - 1)},
    {.letter = 'r',
     .alias = "repetitions",
     .value = "N",
     .standard = "5",
     .help = "repetitions (default %s)",
     OPTION_U32(struct bench_flags, n_repetitions, 1, REPETITIONS_MAX)},
    {.letter = 's',
     .alias = "streams",
     .value = "N",
     .standard = "1",
     .help = "streams that generate at once; tokens of all are counted (default %s)",
     OPTION_U32(struct bench_flags, n_streams, 1, LIMIT_SEQUENCES)},
    {.name = "json",
     .help = "[{\"test\":\"pp512\",\"tokens_per_s\":…,\"stddev\":…},…]",
     OPTION_TRUE(struct bench_flags, json)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 19, .end = "\n"},
    {SESSION_SECTION(struct bench_flags, session)},
    {0},
};

static bool cmd_bench_parse(int argc, char **argv, struct bench_flags *flags)
{
    if (!options_parse(&command_bench, argc, argv, flags))
        return false;
    if (optind + 1 != argc) {
        command_misused(&command_bench,
                        optind == argc ? "a model is missing" : "unexpected argument");
        return false;
    }
    flags->model = argv[optind];
    struct driver_options *driver = &flags->session.driver;
    uint32_t needed = (flags->n_prompt > flags->n_predict ? flags->n_prompt : flags->n_predict) + 1;
    if (driver->context && driver->context < needed) {
        command_misused(&command_bench, "a context of %u tokens is too small; this needs %u",
                        driver->context, needed);
        return false;
    }
    if (!driver->context)
        driver->context = needed;
    if (driver->n_slots < flags->n_streams)
        driver->n_slots = flags->n_streams;
    driver->no_prefix_reuse = true;
    driver->speculate = SPECULATE_OFF; /* random tokens are no text */
    flags->session.no_tokenizer = true;
    flags->session.is_measured = true;
    return true;
}

/* ---- measuring ------------------------------------------------------------------------ */

static enum error_code wait_all(struct generation *generations, uint32_t n, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < n; i++) {
        generation_wait(&generations[i]);
        if (generations[i].reason == FINISH_ERROR && !code)
            code = error_set(err, generations[i].error.code, "%s", generations[i].error.text);
        generation_finish(&generations[i]);
    }
    return code;
}

/* Runs `n_streams` requests at once, each with a prompt of random tokens, and returns the time they
 * take together. */
static enum error_code run_once(const struct session *session, uint32_t n_prompt,
                                uint32_t n_predict, uint32_t n_streams, uint64_t seed,
                                uint64_t *spent_ns, struct error *err)
{
    uint32_t n_vocab = model_hyperparameters(session->model)->n_vocab;
    int32_t *prompt = mem_new_array(n_prompt, sizeof *prompt);
    struct generation *generations = mem_new_array(n_streams, sizeof *generations);
    enum error_code code = ERROR_NONE;
    if (!prompt || !generations)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a prompt of %u tokens",
                         n_prompt);
    for (uint32_t i = 0; i < n_prompt && !code; i++)
        prompt[i] = (int32_t)(random_at(seed, i) % n_vocab);
    struct request request = {.prompt = prompt,
                              .n_prompt = n_prompt,
                              .n_predict = n_predict,
                              .sampler = sampler_defaults()};
    request.sampler.temperature = 0;
    uint64_t start_ns = clock_now_ns();
    uint32_t n_started = 0;
    while (n_started < n_streams && !code) {
        code = generation_start(&generations[n_started], session->generator, &request, err);
        n_started += !code;
    }
    enum error_code ended = wait_all(generations, n_started, code ? NULL : err);
    *spent_ns = clock_now_ns() - start_ns;
    mem_free(generations);
    mem_free(prompt);
    return code ? code : ended;
}

static void cmd_bench_summarise(const double *speeds, uint32_t n, struct measurement *out)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += speeds[i];
    out->mean = sum / n;
    for (uint32_t i = 0; i < n; i++)
        squares += (speeds[i] - out->mean) * (speeds[i] - out->mean);
    out->deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static enum error_code cmd_bench_measure(const struct session *session,
                                         const struct bench_flags *flags, bool prompt,
                                         struct measurement *out, struct error *err)
{
    uint32_t n_prompt = prompt ? flags->n_prompt : 1, n_predict = prompt ? 1 : flags->n_predict;
    uint32_t n_streams = prompt ? 1 : flags->n_streams;
    uint32_t n_counted = prompt ? n_prompt : n_predict * n_streams;
    double speeds[REPETITIONS_MAX];
    uint64_t spent_ns = 0;
    /* The first use of a device pays for pages, caches and compiled shaders. */
    enum error_code code = run_once(session, n_prompt, prompt || n_predict < 4 ? n_predict : 4,
                                    n_streams, 0, &spent_ns, err);
    for (uint32_t i = 0; i < flags->n_repetitions && !code; i++) {
        code = run_once(session, n_prompt, n_predict, n_streams, i + 1, &spent_ns, err);
        speeds[i] = (double)n_counted * 1e9 / (double)spent_ns;
    }
    if (code)
        return code;
    cmd_bench_summarise(speeds, flags->n_repetitions, out);
    if (n_streams > 1)
        snprintf(out->test, sizeof out->test, "tg%u x%u", n_predict, n_streams);
    else
        snprintf(out->test, sizeof out->test, "%s%u", prompt ? "pp" : "tg",
                 prompt ? n_prompt : n_predict);
    return ERROR_NONE;
}

/* ---- showing -------------------------------------------------------------------------- */

static void cmd_bench_print_json(const struct measurement *results, uint32_t n)
{
    putchar('[');
    for (uint32_t i = 0; i < n; i++)
        printf("%s{\"test\":\"%s\",\"tokens_per_s\":%.4f,\"stddev\":%.4f}", i ? "," : "",
               results[i].test, results[i].mean, results[i].deviation);
    puts("]");
}

static void describe_backends(const struct session *session, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < session->plan.n_stages && used + 1 < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s %u", i ? "+" : "",
                                 device_info(session->plan.stages[i].device)->id,
                                 session->plan.stages[i].n_layers);
}

static uint32_t cpu_threads(const struct session *session)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < session->plan.n_stages; i++) {
        uint32_t n = device_threads(session->plan.stages[i].device);
        most = n > most ? n : most;
    }
    return most;
}

static void cmd_bench_print_table(const struct session *session, const struct measurement *results,
                                  uint32_t n)
{
    char model[128], backends[128];
    snprintf(model, sizeof model, "%s %s", model_name(session->model),
             model_type_name(session->model));
    if (session->plan.n_stages > 1)
        describe_backends(session, backends, sizeof backends);
    else
        snprintf(backends, sizeof backends, "%s", device_info(session->plan.stages[0].device)->id);
    puts("| model                          |       size |     params | backend    | threads |      "
         "      test |"
         "                  t/s |");
    puts("| ------------------------------ | ---------: | ---------: | ---------- | ------: | "
         "--------------: |"
         " -------------------: |");
    for (uint32_t i = 0; i < n; i++) {
        char speed[64];
        snprintf(speed, sizeof speed, "%.2f ± %.2f", results[i].mean, results[i].deviation);
        printf("| %-30s | %6.2f MiB | %8.2f M | %-10s | %7u | %15s | %21s |\n", model,
               (double)model_weight_bytes(session->model) / (1024 * 1024),
               (double)model_parameter_count(session->model) / 1e6, backends, cpu_threads(session),
               results[i].test, speed);
    }
}

static int cmd_bench_run(int argc, char **argv)
{
    struct bench_flags flags = {0};
    if (!cmd_bench_parse(argc, argv, &flags))
        return EXIT_USAGE;
    struct error err;
    struct session session;
    if (session_open(flags.model, &flags.session, &session, &err))
        return command_fail(&command_bench, &err);
    struct measurement results[2];
    uint32_t n = 0;
    enum error_code code = ERROR_NONE;
    if (flags.n_prompt)
        code = cmd_bench_measure(&session, &flags, true, &results[n++], &err);
    if (flags.n_predict && !code)
        code = cmd_bench_measure(&session, &flags, false, &results[n++], &err);
    if (!code && flags.json)
        cmd_bench_print_json(results, n);
    else if (!code)
        cmd_bench_print_table(&session, results, n);
    session_close(&session);
    return code ? command_fail(&command_bench, &err) : EXIT_OK;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure how fast a model reads and writes",
    .usage = usage,
    .options = sections,
    .run = cmd_bench_run,
};
