#include "cli/reply.h"

#include "base/log.h"
#include "cli/generation.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INTERRUPT_POLL_MS = 100 };

/* ---- Ctrl-C --------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupt_count;

static void reply_on_interrupt(int signal_number)
{
    (void)signal_number;
    if (++interrupt_count >
        1) /* the first has not been heeded yet: a device may be busy for long */
        _exit(128 + SIGINT);
}

void interrupts_catch(void)
{
    struct sigaction action = {
        .sa_handler = reply_on_interrupt}; /* without SA_RESTART: reading a line is to end, too */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

unsigned interrupts(void)
{
    return (unsigned)interrupt_count;
}

void interrupts_clear(void)
{
    interrupt_count = 0;
}

/* ---- the answer ----------------------------------------------------------------------- */

void reply_deinit(struct reply *reply)
{
    buffer_deinit(&reply->text);
    token_list_deinit(&reply->tokens);
    *reply = (struct reply){0};
}

static void reply_show(struct reply *reply, size_t from, bool quiet)
{
    if (quiet || reply->text.size == from)
        return;
    fwrite(reply->text.data + from, 1, reply->text.size - from, stdout);
    fflush(stdout);
}

static enum error_code reply_take_token(const struct session *session, int32_t token,
                                        struct token_stream *stream, struct reply *reply,
                                        bool quiet, struct error *err)
{
    size_t before = reply->text.size;
    token_stream_push(stream, session->tokenizer, token, false, &reply->text);
    reply_show(reply, before, quiet);
    if (reply->text.failed)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the answer");
    return token_list_push(&reply->tokens, token, err);
}

/* `interrupts_before`: how many there were before the request. */
static enum error_code take_all(const struct session *session, struct generation *generation,
                                unsigned interrupts_before, struct token_stream *stream,
                                struct reply *reply, bool quiet, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (;;) {
        int32_t token;
        enum generation_result result = generation_next(generation, INTERRUPT_POLL_MS, &token);
        if (result == GENERATION_END)
            break;
        if (result == GENERATION_TOKEN && !code)
            code = reply_take_token(session, token, stream, reply, quiet, err);
        if (code || interrupts() != interrupts_before)
            generator_cancel(session->generator, generation->id);
    }
    return code;
}

/* One request; its tokens go behind those that `out` has. */
static enum error_code reply_ask(const struct session *session, const struct token_list *prompt,
                                 const struct reply_options *options, uint32_t n_predict,
                                 struct token_stream *stream, struct reply *out,
                                 struct request_usage *usage, struct error *err)
{
    struct request request = {
        .prompt = prompt->ids,
        .n_prompt = (uint32_t)prompt->count,
        .n_predict = n_predict,
        .sampler = options->sampler,
        .stop_tokens = session->stop_tokens.ids,
        .n_stop_tokens = (uint32_t)session->stop_tokens.count,
        .constraint = options->constraint,
        .pictures = options->pictures,
        .n_pictures = options->n_pictures,
    };
    struct generation generation;
    const unsigned interrupts_before = interrupts();
    enum error_code code = generation_start(&generation, session->generator, &request, err);
    if (code)
        return code;
    code = take_all(session, &generation, interrupts_before, stream, out, options->quiet, err);
    out->reason = generation.reason;
    *usage = generation.usage;
    if (!code && generation.reason == FINISH_ERROR)
        code = error_set(err, generation.error.code, "%s", generation.error.text);
    generation_finish(&generation);
    return code;
}

/* ---- a full context -------------------------------------------------------------------------- */

/* The first tokens draw much of every head's attention, and stay (arXiv:2309.17453). */
enum { SHIFT_KEPT = 4 };

/* `window` is what the model had read and written: drops the older half of what may go. */
static void reply_shift(struct token_list *window, struct reply *reply)
{
    const size_t dropped = (window->count - SHIFT_KEPT) / 2;
    memmove(window->ids + SHIFT_KEPT, window->ids + SHIFT_KEPT + dropped,
            (window->count - SHIFT_KEPT - dropped) * sizeof *window->ids);
    window->count -= dropped;
    reply->shifts++;
    reply->n_dropped += (uint32_t)dropped;
}

static enum error_code reply_append(struct token_list *window, const int32_t *ids, size_t n,
                                    struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; !code && i < n; i++)
        code = token_list_push(window, ids[i], err);
    return code;
}

/* Goes on while the context is what ended the answer, and something came of it. */
static enum error_code reply_go_on(const struct session *session, struct token_list *window,
                                   const struct reply_options *options, struct token_stream *stream,
                                   struct reply *out, struct error *err)
{
    size_t seen = 0;
    enum error_code code = ERROR_NONE;
    while (!code && out->reason == FINISH_LENGTH && out->tokens.count > seen &&
           out->tokens.count < options->n_predict) {
        struct request_usage usage = {0};
        code = reply_append(window, out->tokens.ids + seen, out->tokens.count - seen, err);
        seen = out->tokens.count;
        if (code || window->count < SHIFT_KEPT + 2)
            break;
        reply_shift(window, out);
        code = reply_ask(session, window, options, options->n_predict - (uint32_t)seen, stream, out,
                         &usage, err);
        out->usage.generated_tokens += usage.generated_tokens;
        out->usage.decode_ns += usage.prefill_ns + usage.decode_ns;
    }
    return code;
}

enum error_code reply_generate(const struct session *session, const struct token_list *prompt,
                               const struct reply_options *options, struct reply *out,
                               struct error *err)
{
    struct token_stream stream = {0};
    struct token_list window = {0};
    if (prompt->count > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "the prompt has %zu tokens; the limit is %d",
                         prompt->count, LIMIT_CONTEXT);
    enum error_code code =
        reply_ask(session, prompt, options, options->n_predict, &stream, out, &out->usage, err);
    if (!code && options->context_shift)
        code = reply_append(&window, prompt->ids, prompt->count, err);
    if (!code && options->context_shift)
        code = reply_go_on(session, &window, options, &stream, out, err);
    const size_t before = out->text.size;
    token_stream_finish(&stream, &out->text);
    reply_show(out, before, options->quiet);
    token_list_deinit(&window);
    return code;
}

/* ---- what it took --------------------------------------------------------------------- */

static double per_second(uint32_t count, uint64_t ns)
{
    return ns ? (double)count * 1e9 / (double)ns : 0;
}

double reply_prefill_tokens_per_s(const struct reply *reply)
{
    const struct request_usage *usage = &reply->usage;
    return per_second(usage->prompt_tokens - usage->cached_tokens, usage->prefill_ns);
}

/* The first token comes with the prompt; one that ended the answer is not counted among its tokens,
 * but took as long.
 */
double reply_decode_tokens_per_s(const struct reply *reply)
{
    const uint32_t n = reply->usage.generated_tokens;
    if (n < 2)
        return 0;
    return per_second(reply->reason == FINISH_STOP ? n : n - 1, reply->usage.decode_ns);
}

/* A speed, and what had been forecast: by measured figures alone, for an estimate would only
 * mislead. */
static void report_speed(double measured, double forecast, bool is_measured, const char *what,
                         struct buffer *line)
{
    buffer_printf(line, " %.1f tok/s", measured);
    if (!is_measured || forecast <= 0 || measured <= 0)
        return;
    buffer_printf(line, " (forecast %.1f)", forecast);
    log_line(LOG_INFO, "forecast", "%s: %.2f tok/s forecast, %.2f measured (%+.1f %%)", what,
             forecast, measured, 100 * (forecast / measured - 1));
}

void reply_report(const struct session *session, const struct reply *reply)
{
    const struct request_usage *usage = &reply->usage;
    const struct plan_forecast forecast = session_forecast(session, usage);
    struct buffer line = {0};
    buffer_printf(&line, "prompt %u tokens", usage->prompt_tokens);
    if (usage->cached_tokens)
        buffer_printf(&line, " (%u cached)", usage->cached_tokens);
    report_speed(reply_prefill_tokens_per_s(reply), forecast.prefill_tokens_per_s,
                 forecast.measured, "prompt", &line);
    if (usage->generated_tokens) {
        buffer_printf(&line, ", answer %u tokens", usage->generated_tokens);
        if (usage->generated_tokens > 1)
            report_speed(reply_decode_tokens_per_s(reply), forecast.decode_tokens_per_s,
                         forecast.measured, "answer", &line);
    }
    if (usage->drafted_tokens)
        buffer_printf(&line, ", %u of %u guessed tokens were right", usage->accepted_tokens,
                      usage->drafted_tokens);
    buffer_text(&line, "; ");
    session_describe_split(session, &line);
    fprintf(stderr, "%s\n", line.data ? line.data : "");
    buffer_deinit(&line);
}

const char *finish_reason_name(enum finish_reason reason)
{
    switch (reason) {
    case FINISH_STOP:
        return "stop";
    case FINISH_LENGTH:
        return "length";
    case FINISH_CANCELLED:
        return "cancelled";
    case FINISH_ERROR:
        return "error";
    }
    return "";
}
