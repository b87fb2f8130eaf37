#include "cli/session.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size_text.h"
#include "base/this_process.h"
#include "cli/model_given.h"
#include "cli/notice.h"
#include "cli/options.h"
#include "cli/remote.h"
#include "cli/session_draft.h"
#include "cli/session_sight.h"
#include "engine/batch_shape.h"
#include "gpu/gpu.h"
#include "heat/heat.h"
#include "model/chat_template.h"
#include "model/model_precision.h"
#include "plan/selection.h"
#include "report/report.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

/* A model that is read from the disk over and over is slow: said without being asked. */
static void session_say_stream(const struct plan *plan)
{
    struct buffer text = {0};
    if (plan_stream_say(plan, &text))
        log_line(LOG_WARN, "plan", "the model does not fit: %s", text.data ? text.data : "");
    buffer_deinit(&text);
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

/* Where every stage can, slots share their cells: no sequence has less for it, and what begins
 * alike is held once. In the same memory there may be more sequences, but for a model that keeps
 * something of each beside. */
static void session_share_cells(const struct session *session, const struct session_flags *flags,
                                struct driver_options *driver)
{
    const struct hyperparameters *h = model_hyperparameters(session->model);
    const uint64_t cells = (uint64_t)driver->n_slots * kv_cells(driver->context);
    bool all =
        !driver->cells && driver->n_slots > 1 && cells <= LIMIT_POOL_CELLS && !h->reads_whole;
    for (uint32_t i = 0; i < session->plan.n_stages && all; i++)
        all = stage_has_pool(session->plan.stages[i].device, driver->flash);
    if (!all)
        return;
    driver->cells = (uint32_t)cells;
    if (flags->slots_shared > driver->n_slots && !h->window && !hyperparameters_has_states(h))
        driver->n_slots = flags->slots_shared;
}

/* Layers that are streamed would be converted for every batch: they are converted once, into a file
 * of that type. Not ones that may become of another type while it runs. */
static bool session_may_convert(const struct session *session, const struct session_flags *flags)
{
    return flags->driver.precision && !flags->driver.precision_allowed &&
           model_is_smaller_at(session->model, flags->driver.precision, 0);
}

static enum error_code session_convert(struct session *session, const struct session_flags *flags,
                                       struct error *err)
{
    const char *type = model_precision_name(flags->driver.precision);
    struct version_file *smaller = &session->smaller;
    enum error_code code = version_file_open(session->model, flags->driver.precision, smaller, err);
    if (!code)
        code = model_stretch(smaller->model, &flags->rope, err);
    if (code)
        return error_wrap(err, "layers as %s, to stream them", type);
    if (smaller->bytes)
        log_line(LOG_WARN, "plan", "converted to %s once, to stream it: %s in %.1f s, kept in %s",
                 type, size_text(smaller->bytes).text, smaller->took_s,
                 shelf_model_path(smaller->kept));
    else
        log_line(LOG_INFO, "plan", "streams %s, converted before", shelf_model_path(smaller->kept));
    return ERROR_NONE;
}

static enum error_code session_load(struct session *session, const struct session_flags *flags,
                                    struct error *err)
{
    struct selection selection;
    const bool as_given = flags->sim_file || flags->split;
    enum error_code code = selection_make(session->gpu, flags->devices, as_given, &selection, err);
    if (!code && session->draft)
        code = session_plan_draft(session, flags, &selection, err);
    if (code)
        return code;
    struct driver_options driver = flags->driver, asked = flags->driver;
    struct driver_draft draft;
    const struct plan_request request = {
        .devices = selection.devices,
        .n_devices = selection.n_devices,
        .n_spare = selection.n_spare,
        .split = flags->split,
        .may_stream = !flags->sim_file || flags->driver.weights_max,
        .beside = session->draft ? &session->draft_plan : NULL,
        .limit_s = flags->plan_limit_s,
        .weights = flags->weights,
        .options = &asked,
        .context_wished = library_defaults_context(session->defaults.json.data),
    };
    const struct model *model = session->model;
    uint64_t start_ns = clock_now_ns();
    code = plan_make_context(&session->plan, model, &request, &driver.context, err);
    if (code == ERROR_NOT_FOUND && request.may_stream && session_may_convert(session, flags)) {
        code = session_convert(session, flags, err);
        model = session->smaller.model;
        asked.precision = driver.precision = 0;
        driver.context = flags->driver.context;
        start_ns = clock_now_ns();
        if (!code)
            code = plan_make_context(&session->plan, model, &request, &driver.context, err);
    }
    if (!code) {
        log_plan(&session->plan, clock_now_ns() - start_ns);
        session_say_stream(&session->plan);
    }
    if (session->plan.stream.n_streamed)
        driver.weights_max = session->plan.stream.weights_max;
    driver.weights_may_grow = !flags->driver.weights_max; /* which is its owner's word */
    if (!flags->sim_file && !flags->devices)              /* whoever names devices wants no other */
        driver.fallback = gpu_find(session->gpu, "cpu");
    session->context = driver.context;
    if (!code) {
        session_share_cells(session, flags, &driver);
        if (session->draft) {
            draft = session_draft(session, flags, &driver);
            driver.draft = &draft;
        }
        code = driver_open(model, session->plan.stages, session->plan.n_stages, &driver,
                           &session->driver, err);
    }
    if (!code) {
        session_say_draft(session);
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

/* On the sampling thread. */
static void session_on_precision(void *arg, struct device *device, bool lower)
{
    struct session *session = arg;
    driver_ask_lower(session->driver, device, lower);
}

static enum error_code session_govern(struct session *session, const struct session_flags *flags,
                                      struct error *err)
{
    const bool allowed = flags->driver.precision_allowed;
    const struct heat_options options = {.on_precision = allowed ? session_on_precision : NULL,
                                         .arg = session};
    return heat_open(session->gpu, &options, &session->heat, err);
}

/* As the flags say, before anything is made of the model. */
static enum error_code session_stretch(struct session *session, const struct session_flags *flags,
                                       struct error *err)
{
    enum error_code code = model_stretch(session->model, &flags->rope, err);
    if (code || flags->is_measured) /* its speed and its logits may be wanted beyond */
        return code;
    return driver_check_context(session->model, flags->driver.context, err);
}

/* Of real devices the CPU alone. */
static bool session_needs_no_other(const struct session_flags *flags)
{
    const char *draft = flags->draft_device;
    if (draft && strcmp(draft, "cpu") != 0 && strncmp(draft, "sim:", 4) != 0)
        return false;
    return flags->devices ? strcmp(flags->devices, "cpu") == 0 : flags->sim_file != NULL;
}

enum error_code session_open(const char *path, const struct session_flags *flags,
                             struct session *out, struct error *err)
{
    char file[PATH_MAX];
    *out = (struct session){0};
    enum error_code code = model_given(path, file, err);
    if (!code)
        code = model_open(file, &out->model, err);
    if (!code)
        code = session_stretch(out, flags, err);
    if (!code && flags->takes_defaults)
        code = library_defaults_read(file, &out->defaults, err);
    if (!code)
        code = session_open_draft(out, flags, err);
    if (code) {
        session_close(out);
        return code;
    }
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    struct gpu_options options = {
        .registry = registry,
        .prober = this_program(),
        .backend = flags->backend,
        .n_cpu_threads = flags->n_threads,
        .skip_other = session_needs_no_other(flags),
        .skip_empty = true,
        .sim_file = flags->sim_file,
    };
    struct notice notice;
    notice_begin(&notice, "loading %s …", model_name(out->model));
    code = gpu_open(&options, &out->gpu, err);
    if (!code)
        code = session_open_sight(out, file, flags, err);
    if (!code)
        code = load_beside_vocabulary(out, flags, err);
    if (!code && !flags->is_measured && !flags->no_governor)
        code = session_govern(out, flags, err);
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
    for (uint32_t i = 0; session->driver && i < session->draft_plan.n_stages; i++)
        device_interrupt(session->draft_plan.stages[i].device);
    driver_close(session->driver);
    sight_close(session->sight);
    remote_close(session->remote);
    plan_deinit(&session->plan);
    plan_deinit(&session->draft_plan);
    if (session->gpu)
        gpu_close(session->gpu);
    if (session->chat_template)
        chat_template_close(session->chat_template);
    if (session->tokenizer)
        tokenizer_close(session->tokenizer);
    token_list_deinit(&session->stop_tokens);
    library_defaults_deinit(&session->defaults);
    version_file_close(&session->smaller);
    if (session->draft)
        model_close(session->draft);
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
    session_describe_draft(session, out);
}
