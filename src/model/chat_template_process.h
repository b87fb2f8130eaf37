/* A Jinja template and its interpreter (chat_template_jinja.h) in a process of its own, in a
 * sandbox: a flaw of the interpreter that a crafted template reaches finds neither keys nor files
 * nor a network there. It is this program, started anew with a private first argument; its main()
 * begins with chat_template_main().
 *
 * One process a template. It is started with the template, and again by the next call when it has
 * gone; a call during which it goes, or takes longer than it may, fails with ERROR_IO. What it
 * answers is not trusted: sizes, codes and UTF-8 are checked.
 *
 * One thread at a time per object, not always the same one. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct template_process;

/* As jinja_open(). `program` lives on; `limit_ms`: for one call. */
enum error_code template_process_open(const char *program, uint32_t limit_ms, const char *source,
                                      size_t size, const char *bos_text, const char *eos_text,
                                      struct template_process **out, struct error *err);
void template_process_close(struct template_process *process); /* NULL is fine */
enum error_code template_process_render(struct template_process *process, const char *json,
                                        size_t size, struct buffer *out, struct error *err);
pid_t template_process_pid(const struct template_process *process); /* 0: it does not run */

/* ---- for its two ends, and tests ---- */

#define TEMPLATE_ARGUMENT "--run-chat-templates-for-the-node"

enum template_kind { TEMPLATE_OPEN = 1, TEMPLATE_RENDER };
/* Before each message's bytes; both ends are the same program. OPEN: sizes of source, bos, eos;
 * RENDER: of the JSON; an answer: a code, and the size of the text or of the error's. */
struct template_head {
    uint32_t kind; /* a template_kind, or an answer's error_code */
    uint32_t sizes[3];
};

/* One answer. Appends to `out`. `broken`: what came cannot be an answer, or nothing more comes;
 * `err` says so. Else the code is the answer's, and `err` its text. */
enum error_code template_receive_answer(int socket, uint64_t until_ns, struct buffer *out,
                                        bool *broken, struct error *err);
