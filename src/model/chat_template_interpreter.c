#include "model/chat_template_interpreter.h"

#include "base/limits.h"
#include "base/work_limit.h"
#include "model/chat_template_scripts.h"

#include <pthread.h>
#include <string.h>

/* For the frames that QuickJS does not count: its C functions, libc and what a sanitizer adds. */
enum { STACK_MARGIN_BYTES = 512 * 1024 };

enum error_code interpreter_call(void *(*work)(void *), void *argument, struct error *err)
{
    pthread_attr_t attributes;
    pthread_t thread;
    bool made = false;
    if (pthread_attr_init(&attributes) == 0) {
        made = pthread_attr_setstacksize(&attributes,
                                         INTERPRETER_STACK_BYTES + STACK_MARGIN_BYTES) == 0 &&
               pthread_create(&thread, &attributes, work, argument) == 0;
        pthread_attr_destroy(&attributes);
    }
    if (!made)
        return error_set(err, ERROR_NO_MEMORY, "no thread for the interpreter");
    pthread_join(thread, NULL);
    return ERROR_NONE;
}

/* ---- limits ---- */

static int template_interpreter_on_interrupt(JSRuntime *runtime, void *opaque)
{
    (void)runtime;
    struct interpreter *interpreter = opaque;
    interpreter->interrupted = interpreter->interrupted || !work_limit_goes_on() ||
                               script_clock_ns() > interpreter->heap.deadline_ns;
    return interpreter->interrupted;
}

void interpreter_enter(struct interpreter *interpreter)
{
    interpreter->heap.deadline_ns = script_clock_ns() + (uint64_t)LIMIT_TEMPLATE_MS * 1000000u;
    JS_UpdateStackTop(interpreter->runtime); /* this is not the thread of last time */
}

static enum error_code limit_error(const struct interpreter *interpreter, struct error *err)
{
    if (interpreter->interrupted || interpreter->heap.out_of_time)
        return error_set(err, ERROR_BUSY, "takes more than %d ms of processor time",
                         LIMIT_TEMPLATE_MS);
    if (interpreter->heap.out_of_memory)
        return error_set(err, ERROR_BUSY, "needs more than %d MiB of memory",
                         LIMIT_TEMPLATE_MEMORY_BYTES >> 20);
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

/* RangeError and InternalError are what QuickJS and chat_template.js throw at their bounds; a
 * template's own raise_exception throws a plain Error. */
static enum error_code template_interpreter_describe(JSContext *context, JSValueConst exception,
                                                     struct error *err)
{
    const char *name = text_property(context, exception, "name");
    const char *message = text_property(context, exception, "message");
    bool plain = !name || strcmp(name, "Error") == 0;
    bool bound =
        (name && (strcmp(name, "RangeError") == 0 || strcmp(name, "InternalError") == 0)) ||
        (message &&
         strcmp(message, "stack overflow") == 0); /* a SyntaxError when JSON is too deep */
    enum error_code code =
        error_set(err, bound ? ERROR_BUSY : ERROR_INVALID, "%s%s%s", plain ? "" : name,
                  plain ? "" : ": ", message ? message : "an exception without a message");
    JS_FreeCString(context, name);
    JS_FreeCString(context, message);
    return code;
}

enum error_code interpreter_error(struct interpreter *interpreter, JSValueConst result,
                                  struct error *err)
{
    JSValue exception =
        JS_IsException(result) ? JS_GetException(interpreter->context) : JS_UNDEFINED;
    enum error_code code = limit_error(interpreter, err);
    if (!code && JS_IsException(result))
        code = template_interpreter_describe(interpreter->context, exception, err);
    JS_FreeValue(interpreter->context, exception);
    return code;
}

/* ---- start and stop ---- */

static void add_intrinsics(JSContext *context)
{
    JS_AddIntrinsicBaseObjects(context);
    JS_AddIntrinsicStringNormalize(context);
    JS_AddIntrinsicRegExpCompiler(context);
    JS_AddIntrinsicRegExp(context);
    JS_AddIntrinsicJSON(context);
    JS_AddIntrinsicMapSet(context);
    JS_AddIntrinsicPromise(context);
}

/* A module of tools/embed_script.c; JS_EXCEPTION with an exception pending when it fails. */
static JSValue read_module(JSContext *context, const uint8_t *bytecode, size_t size)
{
    JSValue module = JS_ReadObject(context, bytecode, size, JS_READ_OBJ_BYTECODE);
    if (!JS_IsException(module) && JS_ResolveModule(context, module) < 0) {
        JS_FreeValue(context, module);
        return JS_EXCEPTION;
    }
    return module;
}

/* Runs chat_template.js and gives its namespace. */
static JSValue run_main_module(JSContext *context)
{
    /* The context keeps modules, by name: each may import those read before. */
    JSValue jinja = read_module(context, script_jinja, script_jinja_size);
    JS_FreeValue(context, jinja);
    JSValue python = JS_IsException(jinja)
                         ? JS_EXCEPTION
                         : read_module(context, script_python, script_python_size);
    JS_FreeValue(context, python);
    JSValue module =
        JS_IsException(python) ? JS_EXCEPTION : read_module(context, script_main, script_main_size);
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

static bool template_interpreter_make(struct interpreter *interpreter)
{
    interpreter->heap.limit = LIMIT_TEMPLATE_MEMORY_BYTES;
    interpreter->runtime = JS_NewRuntime2(script_heap_functions(), &interpreter->heap);
    if (!interpreter->runtime)
        return false;
    JS_SetMaxStackSize(interpreter->runtime, INTERPRETER_STACK_BYTES);
    JS_SetInterruptHandler(interpreter->runtime, template_interpreter_on_interrupt, interpreter);
    interpreter_enter(interpreter);
    interpreter->context = JS_NewContextRaw(interpreter->runtime);
    if (!interpreter->context)
        return false;
    add_intrinsics(interpreter->context);
    return true;
}

enum error_code interpreter_start(struct interpreter *interpreter, JSValue *exports,
                                  struct error *err)
{
    enum error_code code;
    if (!template_interpreter_make(interpreter)) {
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the interpreter");
    } else {
        *exports = run_main_module(interpreter->context);
        code = interpreter_error(interpreter, *exports, err);
    }
    if (code)
        interpreter_stop(interpreter);
    return code;
}

void interpreter_stop(struct interpreter *interpreter)
{
    script_heap_deinit(&interpreter->heap);
    *interpreter = (struct interpreter){0};
}

bool interpreter_runs(const struct interpreter *interpreter)
{
    return interpreter->context != NULL;
}
