#include "model/chat_template_jinja.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/work_limit.h"
#include "model/chat_template_interpreter.h"

#include <string.h>
#include <time.h>

/* A heap that one large request has blown up is not kept for the next. */
enum { HEAP_KEPT_BYTES = 32 * 1024 * 1024 };

struct jinja {
    char *source;
    size_t source_size;
    char *bos_text, *eos_text;

    struct interpreter interpreter;
    /* Values in its heap, valid while it runs. */
    JSValue render;  /* the function of chat_template.js */
    JSValue program; /* the parsed template */
    JSValue own;     /* the model's variables */
};

static JSValue strftime_now(JSContext *context, JSValueConst this_value, int argc,
                            JSValueConst *argv)
{
    (void)this_value;
    const char *format = argc > 0 ? JS_ToCString(context, argv[0]) : NULL;
    if (!format)
        return argc > 0 ? JS_EXCEPTION
                        : JS_ThrowTypeError(context, "strftime_now() needs a format");
    char text[1024];
    time_t now = time(NULL);
    struct tm local;
    size_t size = 0;
    if (localtime_r(&now, &local)) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        size = strftime(text, sizeof text, format, &local);
#pragma GCC diagnostic pop
    }
    JS_FreeCString(context, format);
    return JS_NewStringLen(context, text, size);
}

static bool define_own(struct jinja *jinja)
{
    JSContext *context = jinja->interpreter.context;
    jinja->own = JS_NewObject(context);
    return !JS_IsException(jinja->own) &&
           JS_SetPropertyStr(context, jinja->own, "bos_token",
                             JS_NewString(context, jinja->bos_text)) >= 0 &&
           JS_SetPropertyStr(context, jinja->own, "eos_token",
                             JS_NewString(context, jinja->eos_text)) >= 0 &&
           JS_SetPropertyStr(context, jinja->own, "strftime_now",
                             JS_NewCFunction(context, strftime_now, "strftime_now", 1)) >= 0;
}

static JSValue template_jinja_parse(struct jinja *jinja, JSValueConst exports)
{
    JSContext *context = jinja->interpreter.context;
    JSValue function = JS_GetPropertyStr(context, exports, "parse");
    JSValue source = JS_NewStringLen(context, jinja->source, jinja->source_size);
    JSValue program = JS_IsException(source) ? JS_EXCEPTION
                                             : JS_Call(context, function, JS_UNDEFINED, 1, &source);
    JS_FreeValue(context, source);
    JS_FreeValue(context, function);
    return program;
}

static enum error_code template_jinja_start_here(struct jinja *jinja, struct error *err)
{
    struct interpreter *interpreter = &jinja->interpreter;
    JSValue exports;
    enum error_code code = interpreter_start(interpreter, &exports, err);
    if (code)
        return code;
    jinja->render = JS_GetPropertyStr(interpreter->context, exports, "render");
    jinja->program = define_own(jinja) ? template_jinja_parse(jinja, exports) : JS_EXCEPTION;
    JS_FreeValue(interpreter->context, exports);
    code = interpreter_error(interpreter, jinja->program, err);
    if (code)
        interpreter_stop(interpreter);
    return code;
}

/* JavaScript's strings may hold half a character (a template that takes `text[0]` of an emoji):
 * such a surrogate comes out of QuickJS as three bytes, ED A0..BF xx, which is not UTF-8. They
 * become U+FFFD, three bytes as well. */
static void append_utf8(struct buffer *out, const char *text, size_t size)
{
    size_t start = out->size;
    buffer_append(out, text, size);
    for (size_t i = start; !out->failed && i + 2 < out->size; i++) {
        if ((unsigned char)out->data[i] == 0xED && (unsigned char)out->data[i + 1] >= 0xA0)
            memcpy(out->data + i, "\xEF\xBF\xBD", 3);
    }
}

static enum error_code append_result(struct interpreter *interpreter, JSValueConst result,
                                     struct buffer *out, struct error *err)
{
    size_t size;
    const char *text = JS_ToCStringLen(interpreter->context, &size, result);
    enum error_code code = interpreter_error(interpreter, text ? result : JS_EXCEPTION, err);
    if (!code && size > LIMIT_TEMPLATE_OUTPUT_BYTES)
        code = error_set(err, ERROR_BUSY, "writes more than %d MiB",
                         LIMIT_TEMPLATE_OUTPUT_BYTES >> 20);
    if (!code) {
        append_utf8(out, text, size);
        code = out->failed
                   ? error_set(err, ERROR_NO_MEMORY, "not enough memory for its %zu bytes", size)
                   : ERROR_NONE;
    }
    JS_FreeCString(interpreter->context, text);
    return code;
}

static enum error_code render_here(struct jinja *jinja, const char *json, size_t size,
                                   struct buffer *out, struct error *err)
{
    struct interpreter *interpreter = &jinja->interpreter;
    JSContext *context = interpreter->context;
    interpreter_enter(interpreter);
    JSValue given = JS_ParseJSON(context, json, size, "messages");
    JSValue result = JS_EXCEPTION;
    if (!JS_IsException(given)) {
        JSValueConst arguments[] = {jinja->program, given, jinja->own};
        result = JS_Call(context, jinja->render, JS_UNDEFINED, 3, arguments);
    }
    JS_FreeValue(context, given);
    enum error_code code = interpreter_error(interpreter, result, err);
    if (!code)
        code = append_result(interpreter, result, out, err);
    JS_FreeValue(context, result);
    if (code == ERROR_BUSY || interpreter->heap.used > HEAP_KEPT_BYTES)
        interpreter_stop(interpreter);
    return code;
}

/* ---- on the interpreter's thread ---- */

struct jinja_job {
    struct jinja *jinja;
    const char *json; /* NULL: only start */
    size_t size;
    struct buffer *out;
    struct error *err;
    struct work_limit *limit; /* of the caller, who waits */
    enum error_code code;
};

static void *template_jinja_work(void *argument)
{
    struct jinja_job *job = argument;
    if (job->limit)
        work_limit_join(job->limit);
    if (!interpreter_runs(&job->jinja->interpreter))
        job->code = template_jinja_start_here(job->jinja, job->err);
    if (!job->code && job->json)
        job->code = render_here(job->jinja, job->json, job->size, job->out, job->err);
    return NULL;
}

static enum error_code template_jinja_run(struct jinja_job job)
{
    job.limit = work_limit_current();
    enum error_code code = interpreter_call(template_jinja_work, &job, job.err);
    return code ? code : job.code;
}

enum error_code jinja_open(const char *source, size_t size, const char *bos_text,
                           const char *eos_text, struct jinja **out, struct error *err)
{
    *out = NULL;
    enum error_code code;
    struct jinja *jinja = mem_new(sizeof *jinja);
    if (!jinja)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the interpreter");
    jinja->source = mem_copy_text(source, size);
    jinja->source_size = size;
    jinja->bos_text = mem_copy_text(bos_text, strlen(bos_text));
    jinja->eos_text = mem_copy_text(eos_text, strlen(eos_text));
    if (!jinja->source || !jinja->bos_text || !jinja->eos_text)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for its %zu bytes", size);
    else
        code = template_jinja_run((struct jinja_job){.jinja = jinja, .err = err});
    if (code)
        jinja_close(jinja);
    else
        *out = jinja;
    return code;
}

void jinja_close(struct jinja *jinja)
{
    if (!jinja)
        return;
    interpreter_stop(&jinja->interpreter);
    mem_free(jinja->source);
    mem_free(jinja->bos_text);
    mem_free(jinja->eos_text);
    mem_free(jinja);
}

enum error_code jinja_render(struct jinja *jinja, const char *json, size_t size, struct buffer *out,
                             struct error *err)
{
    return template_jinja_run(
        (struct jinja_job){.jinja = jinja, .json = json, .size = size, .out = out, .err = err});
}
