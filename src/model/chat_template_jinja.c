#include "model/chat_template_jinja.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/chat_template_heap.h"
#include "model/chat_template_scripts.h"

#include <quickjs/quickjs.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

struct jinja {
    char *source;
    size_t source_size;
    char *bos_text, *eos_text;

    /* The interpreter; runtime is NULL when it has to be started. All of it lies in the heap. */
    struct script_heap heap;
    JSRuntime *runtime;
    JSContext *context;
    JSValue render;  /* the function of chat_template.js */
    JSValue program; /* the parsed template */
    bool interrupted;
};

/* ---- limits ---- */

static int on_interrupt(JSRuntime *runtime, void *opaque)
{
    (void)runtime;
    struct jinja *jinja = opaque;
    jinja->interrupted = jinja->interrupted || clock_now_ns() > jinja->heap.deadline_ns;
    return jinja->interrupted;
}

/* Before every entry into the interpreter. */
static void enter(struct jinja *jinja)
{
    jinja->heap.deadline_ns = clock_now_ns() + (uint64_t)LIMIT_TEMPLATE_MS * 1000000u;
    JS_UpdateStackTop(jinja->runtime); /* this thread may not be the last one */
}

static void stop(struct jinja *jinja)
{
    script_heap_deinit(&jinja->heap);
    jinja->heap = (struct script_heap){0};
    jinja->runtime = NULL;
    jinja->context = NULL;
    jinja->interrupted = false;
}

/* Whether a limit was reached, even if the script went on: the package swallows some exceptions. */
static enum error_code limit_error(const struct jinja *jinja, struct error *err)
{
    if (jinja->interrupted || jinja->heap.out_of_time)
        return error_set(err, ERROR_BUSY, "takes longer than %d ms", LIMIT_TEMPLATE_MS);
    if (jinja->heap.out_of_memory)
        return error_set(err, ERROR_BUSY, "needs more than %d MiB of memory", LIMIT_TEMPLATE_MEMORY_BYTES >> 20);
    return ERROR_NONE;
}

/* ---- exceptions ---- */

/* A property as text, freed with JS_FreeCString; NULL when there is none. */
static const char *text_property(JSContext *context, JSValueConst object, const char *name)
{
    JSValue value = JS_GetPropertyStr(context, object, name);
    const char *text = JS_IsString(value) ? JS_ToCString(context, value) : NULL;
    JS_FreeValue(context, value);
    return text;
}

/* RangeError and InternalError are what QuickJS and chat_template.js throw at their bounds; a template's own
 * raise_exception throws a plain Error. */
static enum error_code exception_error(struct jinja *jinja, struct error *err)
{
    JSContext *context = jinja->context;
    JSValue exception = JS_GetException(context);
    enum error_code code = limit_error(jinja, err);
    if (!code) {
        const char *name = text_property(context, exception, "name");
        const char *message = text_property(context, exception, "message");
        bool plain = !name || strcmp(name, "Error") == 0;
        bool bound = name && (strcmp(name, "RangeError") == 0 || strcmp(name, "InternalError") == 0);
        code = error_set(err, bound ? ERROR_BUSY : ERROR_INVALID, "%s%s%s", plain ? "" : name, plain ? "" : ": ",
                         message ? message : "an exception without a message");
        JS_FreeCString(context, name);
        JS_FreeCString(context, message);
    }
    JS_FreeValue(context, exception);
    return code;
}

/* ---- the interpreter ---- */

static JSValue strftime_now(JSContext *context, JSValueConst this_value, int argc, JSValueConst *argv)
{
    (void)this_value;
    const char *format = argc > 0 ? JS_ToCString(context, argv[0]) : NULL;
    if (!format)
        return argc > 0 ? JS_EXCEPTION : JS_ThrowTypeError(context, "strftime_now() needs a format");
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

static JSModuleDef *compile_module(JSContext *context, const char *name, const char *source, size_t size)
{
    JSValue module = JS_Eval(context, source, size, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(module))
        return NULL;
    JSModuleDef *definition = JS_VALUE_GET_PTR(module);
    JS_FreeValue(context, module); /* the context keeps it */
    return definition;
}

static JSModuleDef *load_module(JSContext *context, const char *name, void *opaque)
{
    (void)opaque;
    if (strcmp(name, "@huggingface/jinja") == 0)
        return compile_module(context, name, script_jinja, script_jinja_size);
    JS_ThrowReferenceError(context, "no module '%s'", name);
    return NULL;
}

static void add_intrinsics(JSContext *context)
{
    JS_AddIntrinsicBaseObjects(context);
    JS_AddIntrinsicEval(context); /* the compiler; a template cannot name eval() */
    JS_AddIntrinsicStringNormalize(context);
    JS_AddIntrinsicRegExpCompiler(context);
    JS_AddIntrinsicRegExp(context);
    JS_AddIntrinsicJSON(context);
    JS_AddIntrinsicMapSet(context);
    JS_AddIntrinsicPromise(context);
}

/* Runs chat_template.js and gives its namespace; JS_EXCEPTION with an exception pending when it fails. */
static JSValue run_main_module(JSContext *context)
{
    JSValue module = JS_Eval(context, script_main, script_main_size, "chat_template.js",
                             JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(module))
        return JS_EXCEPTION;
    JSModuleDef *definition = JS_VALUE_GET_PTR(module);
    JSValue promise = JS_EvalFunction(context, module);
    if (JS_IsException(promise))
        return JS_EXCEPTION;
    bool failed = JS_PromiseState(context, promise) != JS_PROMISE_FULFILLED;
    if (failed)
        JS_Throw(context, JS_PromiseResult(context, promise));
    JS_FreeValue(context, promise);
    return failed ? JS_EXCEPTION : JS_GetModuleNamespace(context, definition);
}

static JSValue parse_template(struct jinja *jinja, JSValueConst namespace)
{
    JSContext *context = jinja->context;
    JSValue parse = JS_GetPropertyStr(context, namespace, "parse");
    JSValue source = JS_NewStringLen(context, jinja->source, jinja->source_size);
    JSValue program = JS_IsException(source) ? JS_EXCEPTION : JS_Call(context, parse, JS_UNDEFINED, 1, &source);
    JS_FreeValue(context, source);
    JS_FreeValue(context, parse);
    return program;
}

static bool make_runtime(struct jinja *jinja)
{
    jinja->heap = (struct script_heap){.limit = LIMIT_TEMPLATE_MEMORY_BYTES};
    jinja->runtime = JS_NewRuntime2(script_heap_functions(), &jinja->heap);
    if (!jinja->runtime)
        return false;
    JS_SetMaxStackSize(jinja->runtime, JINJA_STACK_BYTES);
    JS_SetInterruptHandler(jinja->runtime, on_interrupt, jinja);
    JS_SetModuleLoaderFunc(jinja->runtime, NULL, load_module, NULL);
    enter(jinja);
    jinja->context = JS_NewContextRaw(jinja->runtime);
    if (!jinja->context)
        return false;
    add_intrinsics(jinja->context);
    return true;
}

static enum error_code start(struct jinja *jinja, struct error *err)
{
    if (!make_runtime(jinja)) {
        stop(jinja);
        return error_set(err, ERROR_NO_MEMORY, "no memory for the interpreter");
    }
    JSContext *context = jinja->context;
    JSValue namespace = run_main_module(context);
    bool failed = JS_IsException(namespace);
    if (!failed) {
        jinja->render = JS_GetPropertyStr(context, namespace, "render");
        JSValue function = JS_NewCFunction(context, strftime_now, "strftime_now", 1);
        failed = JS_SetPropertyStr(context, jinja->own, "strftime_now", function) < 0;
        jinja->program = parse_template(jinja, namespace);
        failed = failed || JS_IsException(jinja->program);
        JS_FreeValue(context, namespace);
    }
    enum error_code code = failed ? exception_error(jinja, err) : limit_error(jinja, err);
    if (code)
        stop(jinja);
    return code;
}
