/* A QuickJS interpreter that runs chat_template.js, in a sandbox: no files, no network, no Date.
 *
 * It gets LIMIT_TEMPLATE_MEMORY_BYTES of memory, LIMIT_TEMPLATE_MS of processor time from each
 * interpreter_enter() on, and INTERPRETER_STACK_BYTES of stack. After a limit was reached what is
 * inside may be half done: interpreter_stop() it and start anew.
 *
 * QuickJS recurses on the C stack, some 2 KiB for each JavaScript call, and the package makes a
 * dozen calls for a pair of parentheses. So that neither a template's nesting nor the caller's
 * thread matters, every use runs on a thread with a stack of its own: interpreter_call(). */
#pragma once

#include "base/error.h"
#include "model/chat_template_heap.h"

#include <quickjs/quickjs.h>
#include <stdbool.h>

enum { INTERPRETER_STACK_BYTES = 4 * 1024 * 1024 };

struct interpreter { /* zeroed: stopped. Its address must not change while it runs. */
    struct script_heap heap;
    JSRuntime *runtime;
    JSContext *context;
    bool interrupted;
};

/* Runs work(argument) on a thread with such a stack and waits for it. All functions below belong
 * inside, except interpreter_stop() and interpreter_runs(). ERROR_NO_MEMORY: no thread could be
 * made. */
enum error_code interpreter_call(void *(*work)(void *), void *argument, struct error *err);

/* Runs the script; *exports is its namespace, owned by the interpreter's heap like every value.
 * Enters. */
enum error_code interpreter_start(struct interpreter *interpreter, JSValue *exports,
                                  struct error *err);

/* Frees everything inside, values that the caller holds too. A stopped one stays so. */
void interpreter_stop(struct interpreter *interpreter);

bool interpreter_runs(const struct interpreter *interpreter);

/* Before every use: the time counts from here. */
void interpreter_enter(struct interpreter *interpreter);

/* What went wrong in a call that ended with `result`: ERROR_BUSY for a limit, even when the script
 * swallowed the exception; ERROR_INVALID for any other exception, which is taken; else
 * ERROR_NONE. */
enum error_code interpreter_error(struct interpreter *interpreter, JSValueConst result,
                                  struct error *err);
