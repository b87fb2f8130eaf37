#include "cli/session.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/notice.h"
#include "cli/options.h"
#include "cli/remote.h"
#include "gpu/gpu.h"
#include "heat/heat.h"
#include "model/chat_template.h"
#include "model/model.h"
#include "plan/selection.h"
#include "report/report.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

/* ---- flags ---------------------------------------------------------------------------- */

static bool session_choose(const struct command *command, const char *name, const char *value,
                           const char *const *words, unsigned n_words, unsigned *out)
{
    for (unsigned i = 0; i < n_words; i++) {
        if (strcmp(words[i], value) == 0) {
            *out = i;
            return true;
        }
    }
    command_misused(command, "%s takes %s, %s or %s, not '%s'", name, words[0], words[1], words[2],
                    value);
    return false;
}

static bool choose_kv(struct session_flags *flags, const struct command *command, const char *value)
{
    static const char *const words[] = {"f16", "f32", "q8_0"};
    static const enum kv_type types[] = {KV_F16, KV_F32, KV_Q8_0};
    unsigned chosen = 0;
    bool ok = session_choose(command, "--kv", value, words, 3, &chosen);
    flags->driver.kv_type = types[chosen];
    return ok;
}

static bool session_choose_flash(struct session_flags *flags, const struct command *command,
                                 const char *value)
{
    static const char *const words[] = {"auto", "on", "off"};
    static const enum flash_mode modes[] = {FLASH_AUTO, FLASH_ON, FLASH_OFF};
    unsigned chosen = 0;
    bool ok = session_choose(command, "--flash", value, words, 3, &chosen);
    flags->driver.flash = modes[chosen];
    return ok;
}

enum session_flag_result session_flag(struct session_flags *flags, const struct command *command,
                                      int option, const char *value)
{
    struct driver_options *driver = &flags->driver;
    bool ok = true;
    switch (option) {
    case SESSION_OPTION_DEVICES:
        flags->devices = value;
        break;
    case SESSION_OPTION_SPLIT:
        flags->split = value;
        break;
    case SESSION_OPTION_BACKEND:
        flags->backend = value;
        break;
    case SESSION_OPTION_SIM:
        flags->sim_file = value;
        break;
    case SESSION_OPTION_KV:
        ok = choose_kv(flags, command, value);
        break;
    case SESSION_OPTION_FLASH:
        ok = session_choose_flash(flags, command, value);
        break;
    case SESSION_OPTION_SLOTS:
        ok = option_u32(command, "--slots", value, 1, LIMIT_SEQUENCES, &driver->n_slots);
        break;
    case SESSION_OPTION_BATCH:
        ok = option_u32(command, "--batch", value, 1, LIMIT_BATCH_ROWS, &driver->batch_rows);
        break;
    case SESSION_OPTION_NO_REPACK:
        driver->no_repack = true;
        break;
    case SESSION_OPTION_NO_GOVERNOR:
        flags->no_governor = true;
        break;
    case 't':
        ok = option_u32(command, "--threads", value, 1, 1024, &flags->n_threads);
        break;
    case 'c':
        ok = option_u32(command, "--context", value, 1, LIMIT_CONTEXT, &driver->context);
        break;
    default:
        return SESSION_FLAG_FOREIGN;
    }
    flags->says_where = flags->says_where || option != 'c';
    return ok ? SESSION_FLAG_TAKEN : SESSION_FLAG_WRONG;
}

/* ---- opening -------------------------------------------------------------------------- */

enum error_code session_read_vocabulary(struct session *session, struct error *err)
{
    enum error_code code = tokenizer_open(model_file(session->model), &session->tokenizer, err);
    uint32_t size = code ? 0 : tokenizer_size(session->tokenizer);
    for (uint32_t i = 0; i < size && !code; i++) {
        if (tokenizer_ends_generation(session->tokenizer, (int32_t)i))
            code = token_list_push(&session->stop_tokens, (int32_t)i, err);
    }
    return code;
}

/* Reads the vocabulary while the stages load: neither needs the other. */
struct vocabulary_job {
    struct session *session;
    enum error_code code;
    struct error error;
};

static void *open_vocabulary(void *arg)
{
    struct vocabulary_job *job = arg;
    job->code = session_read_vocabulary(job->session, &job->error);
    return NULL;
}

static void log_plan(const struct plan *plan, uint64_t took_ns)
{
    struct buffer text = {0};
    if (log_level() < LOG_INFO)
        return;
    struct cluster_problem posed = plan->posed;
    posed.problem = plan->problem;
    report_placement_text(&plan->cluster, &posed, &plan->solution, &text);
    if (text.size && !text.failed)
        text.data[text.size - 1] = '\0'; /* the last newline: log_line() adds one */
    log_line(LOG_INFO, "plan", "%.1f ms: %s%s", (double)took_ns * 1e-6,
             plan->is_given ? "as asked for: " : "", text.data ? text.data : "");
    buffer_deinit(&text);
}

static enum error_code session_load(struct session *session, const struct session_flags *flags,
                                    struct error *err)
{
    struct selection selection;
    const bool as_given = flags->sim_file || flags->split;
    enum error_code code = selection_make(session->gpu, flags->devices, as_given, &selection, err);
    if (code)
        return code;
    const struct plan_request request = {
        .devices = selection.devices,
        .n_devices = selection.n_devices,
        .n_spare = selection.n_spare,
        .split = flags->split,
        .options = &flags->driver,
    };
    const uint64_t start_ns = clock_now_ns();
    code = plan_make(&session->plan, session->model, &request, err);
    if (!code)
        log_plan(&session->plan, clock_now_ns() - start_ns);
    if (!code)
        code = driver_open(session->model, session->plan.stages, session->plan.n_stages,
                           &flags->driver, &session->driver, err);
    if (!code) {
        generator_of_driver(&session->of_driver, session->driver);
        session->generator = &session->of_driver.base;
    }
    return code;
}

static enum error_code load_beside_vocabulary(struct session *session,
                                              const struct session_flags *flags, struct error *err)
{
    if (flags->no_tokenizer)
        return session_load(session, flags, err);
    struct vocabulary_job job = {.session = session};
    pthread_t thread;
    bool beside = pthread_create(&thread, NULL, open_vocabulary, &job) == 0;
    enum error_code code = session_load(session, flags, err);
    if (beside)
        pthread_join(thread, NULL);
    else
        open_vocabulary(&job);
    if (!code && job.code) {
        code = job.code;
        error_set(err, code, "%s", job.error.text);
    }
    return code;
}

enum error_code session_open(const char *path, const struct session_flags *flags,
                             struct session *out, struct error *err)
{
    *out = (struct session){0};
    enum error_code code = model_open(path, &out->model, err);
    if (code)
        return code;
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    struct gpu_options options = {
        .registry = registry,
        .prober = "/proc/self/exe",
        .backend = flags->backend,
        .n_cpu_threads = flags->n_threads,
        .skip_other = flags->devices ? strcmp(flags->devices, "cpu") == 0 : flags->sim_file != NULL,
        .sim_file = flags->sim_file,
    };
    struct notice notice;
    notice_begin(&notice, "loading %s …", model_name(out->model));
    code = gpu_open(&options, &out->gpu, err);
    if (!code)
        code = load_beside_vocabulary(out, flags, err);
    if (!code && !flags->is_measured && !flags->no_governor)
        code = heat_open(out->gpu, NULL, &out->heat, err);
    notice_end(&notice);
    if (code)
        session_close(out);
    return code;
}

void session_close(struct session *session)
{
    heat_close(session->heat); /* a device that it has paused would hold the driver */
    /* A simulated device that hangs would hold the driver for ever. */
    for (uint32_t i = 0; session->driver && i < session->plan.n_stages; i++)
        device_interrupt(session->plan.stages[i].device);
    driver_close(session->driver);
    remote_close(session->remote);
    plan_deinit(&session->plan);
    if (session->gpu)
        gpu_close(session->gpu);
    if (session->chat_template)
        chat_template_close(session->chat_template);
    if (session->tokenizer)
        tokenizer_close(session->tokenizer);
    token_list_deinit(&session->stop_tokens);
    if (session->model)
        model_close(session->model);
    *session = (struct session){0};
}

/* ---- text ----------------------------------------------------------------------------- */

enum error_code session_chat_template(struct session *session, struct chat_template **out,
                                      struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (!session->chat_template) {
        const struct gguf_file *file = model_file(session->model);
        const char *source = NULL;
        size_t size = 0;
        if (gguf_file_has(file, "tokenizer.chat_template"))
            code = gguf_file_text(file, "tokenizer.chat_template", &source, &size, err);
        struct buffer bos = {0}, eos = {0};
        tokenizer_piece(session->tokenizer, tokenizer_bos(session->tokenizer), true, &bos);
        tokenizer_piece(session->tokenizer, tokenizer_eos(session->tokenizer), true, &eos);
        if (!code)
            code = chat_template_open(source, size, bos.data ? bos.data : "",
                                      eos.data ? eos.data : "", &session->chat_template, err);
        buffer_deinit(&bos);
        buffer_deinit(&eos);
    }
    *out = session->chat_template;
    return code;
}

enum error_code session_encode(const struct session *session, const char *text, size_t size,
                               struct token_list *out, struct error *err)
{
    size_t start = out->count;
    int32_t bos = tokenizer_bos(session->tokenizer);
    enum error_code code = ERROR_NONE;
    /* Not TOKENIZE_ADD_SPECIAL, which would also add EOS and double a BOS that a template has
     * written. */
    if (bos != TOKEN_NONE && tokenizer_adds_bos(session->tokenizer))
        code = token_list_push(out, bos, err);
    size_t text_start = out->count;
    if (!code)
        code = tokenizer_encode(session->tokenizer, text, size, TOKENIZE_PARSE_SPECIAL, out, err);
    if (!code && text_start > start && out->count > text_start && out->ids[text_start] == bos) {
        out->count--;
        memmove(out->ids + start, out->ids + text_start, (out->count - start) * sizeof *out->ids);
    }
    return code;
}

struct plan_forecast session_forecast(const struct session *session,
                                      const struct request_usage *usage)
{
    const struct plan *plan = &session->plan;
    if (!session->driver)
        return (struct plan_forecast){0};
    const struct plan_work work = {
        .n_prompt = usage->prompt_tokens - usage->cached_tokens,
        .n_cached = usage->cached_tokens,
        .n_generated = usage->generated_tokens,
    };
    struct plan_forecast forecast;
    plan_forecast(&plan->problem, &plan->solution.placement, &work, &forecast);
    return forecast;
}

static void describe_left_out(const struct plan *plan, struct buffer *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->problem.n_devices; i++) {
        bool is_used = plan->problem.devices[i].excluded;
        for (uint32_t j = 0; j < plan->solution.placement.n_stages; j++)
            is_used = is_used || plan->solution.placement.stages[j].device == i;
        if (!is_used)
            buffer_printf(out, "%s%s", n++ ? ", " : "; left out: ", plan->problem.devices[i].id);
    }
}

void session_describe_split(const struct session *session, struct buffer *out)
{
    uint64_t busy_ns = 0;
    if (session->remote)
        buffer_text(out, remote_where(session->remote));
    for (uint32_t i = 0; i < session->plan.n_stages; i++)
        busy_ns += driver_stage_busy_ns(session->driver, i);
    for (uint32_t i = 0; i < session->plan.n_stages; i++) {
        uint32_t n_layers = session->plan.stages[i].n_layers;
        buffer_printf(out, "%s%s %u layer%s", i ? ", " : "",
                      device_info(session->plan.stages[i].device)->id, n_layers,
                      n_layers == 1 ? "" : "s");
        if (session->plan.n_stages > 1 && busy_ns)
            buffer_printf(out, " (%.0f %% of the time)",
                          (double)driver_stage_busy_ns(session->driver, i) * 100 / (double)busy_ns);
    }
    describe_left_out(&session->plan, out);
}
