/* The node's side of chat_template_process.h. */
#include "model/chat_template_process.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "sandbox/reader.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utf8proc.h>

enum { MS = 1000000, TEXTS = 3 };

struct template_process {
    const char *program;
    uint32_t limit_ms;
    char *texts[TEXTS]; /* source, bos, eos: for starting it again */
    size_t sizes[TEXTS];
    pid_t pid; /* 0: it does not run */
    int socket;
};

/* ---- an answer ---- */

static bool answer_is_utf8(const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t code_point;
        const utf8proc_ssize_t length = utf8proc_iterate(
            (const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &code_point);
        if (length <= 0)
            return false;
        at += (size_t)length;
    }
    return true;
}

static enum error_code answer_broken(bool *broken, struct error *err, const char *what)
{
    *broken = true;
    return error_set(err, ERROR_IO, "its process %s", what);
}

static bool answer_head_is_good(const struct template_head *head)
{
    const size_t max = head->kind ? ERROR_TEXT_MAX - 1 : LIMIT_TEMPLATE_OUTPUT_BYTES;
    return head->kind <= ERROR_INTERNAL && head->sizes[0] <= max && !head->sizes[1] &&
           !head->sizes[2];
}

/* Of an error: one line for people. */
static bool answer_take_error(const struct template_head *head, const char *text, struct error *err)
{
    if (!answer_is_utf8(text, head->sizes[0]))
        return false;
    error_set(err, (enum error_code)head->kind, "%.*s", (int)head->sizes[0], text);
    for (char *at = err->text; *at; at++)
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? ' ' : *at;
    return true;
}

enum error_code template_receive_answer(int socket, uint64_t until_ns, struct buffer *out,
                                        bool *broken, struct error *err)
{
    struct template_head head;
    struct error local;
    *broken = false;
    err = err ? err : &local;
    if (!transfer_receive(socket, &head, sizeof head, until_ns))
        return answer_broken(broken, err,
                             errno == ETIMEDOUT ? "took too long, and was ended" : "has ended");
    if (!answer_head_is_good(&head))
        return answer_broken(broken, err, "sent what cannot be");
    char *text = mem_new(head.sizes[0] + 1);
    if (!text) { /* its bytes would be the next answer's */
        *broken = true;
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for its %u bytes", head.sizes[0]);
    }
    enum error_code code = (enum error_code)head.kind;
    if (!transfer_receive(socket, text, head.sizes[0], until_ns))
        code = answer_broken(broken, err,
                             errno == ETIMEDOUT ? "took too long, and was ended" : "has ended");
    else if (code && !answer_take_error(&head, text, err))
        code = answer_broken(broken, err, "sent what cannot be");
    else if (!code && !answer_is_utf8(text, head.sizes[0]))
        code = answer_broken(broken, err, "sent what is not UTF-8");
    else if (!code)
        buffer_append(out, text, head.sizes[0]);
    mem_free(text);
    if (!code && out->failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for its %u bytes", head.sizes[0]);
    return code;
}

/* ---- its life ---- */

static void template_process_stop(struct template_process *process)
{
    if (!process->pid)
        return;
    close(process->socket);
    reader_end(process->pid);
    process->pid = 0;
}

/* A message and its answer. */
static enum error_code template_process_ask(struct template_process *process,
                                            const struct template_head *head,
                                            const char *const texts[], struct buffer *out,
                                            struct error *err)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)process->limit_ms * MS;
    bool broken = false;
    enum error_code code = ERROR_NONE;
    bool sent = transfer_send(process->socket, head, sizeof *head, until_ns);
    for (int i = 0; i < TEXTS && sent; i++)
        sent = transfer_send(process->socket, texts[i], head->sizes[i], until_ns);
    if (sent)
        code = template_receive_answer(process->socket, until_ns, out, &broken, err);
    else
        code = answer_broken(&broken, err,
                             errno == ETIMEDOUT ? "took too long, and was ended" : "has ended");
    if (broken)
        template_process_stop(process);
    return code;
}

static enum error_code template_process_start(struct template_process *process, struct error *err)
{
    assert(!process->pid);
    const int failure = reader_start_with_socket(process->program, TEMPLATE_ARGUMENT, true,
                                                 &process->socket, &process->pid);
    if (failure)
        return error_set(err, ERROR_IO, "cannot start its process: %s", strerror(failure));
    struct template_head head = {.kind = TEMPLATE_OPEN};
    struct buffer nothing = {0};
    for (int i = 0; i < TEXTS; i++)
        head.sizes[i] = (uint32_t)process->sizes[i];
    enum error_code code =
        template_process_ask(process, &head, (const char *const *)process->texts, &nothing, err);
    buffer_deinit(&nothing);
    if (code)
        template_process_stop(process);
    return code;
}

/* It may have been ended while nothing was asked of it: then nobody need hear of it. */
static void template_process_look(struct template_process *process)
{
    char byte;
    if (process->pid && recv(process->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
        template_process_stop(process);
}

enum error_code template_process_open(const char *program, uint32_t limit_ms, const char *source,
                                      size_t size, const char *bos_text, const char *eos_text,
                                      struct template_process **out, struct error *err)
{
    const char *const texts[TEXTS] = {source, bos_text, eos_text};
    const size_t sizes[TEXTS] = {size, strlen(bos_text), strlen(eos_text)};
    struct template_process *process = mem_new(sizeof *process);
    bool ok = process;
    *out = NULL;
    for (int i = 0; i < TEXTS && ok; i++) {
        process->sizes[i] = sizes[i];
        process->texts[i] =
            sizes[i] <= LIMIT_TEMPLATE_BYTES ? mem_copy_text(texts[i], sizes[i]) : NULL;
        ok = process->texts[i];
    }
    enum error_code code = ERROR_NONE;
    if (!ok) {
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for its %zu bytes", size);
    } else {
        process->program = program;
        process->limit_ms = limit_ms;
        code = template_process_start(process, err);
    }
    if (code)
        template_process_close(process);
    else
        *out = process;
    return code;
}

void template_process_close(struct template_process *process)
{
    if (!process)
        return;
    template_process_stop(process);
    for (int i = 0; i < TEXTS; i++)
        mem_free(process->texts[i]);
    mem_free(process);
}

enum error_code template_process_render(struct template_process *process, const char *json,
                                        size_t size, struct buffer *out, struct error *err)
{
    const struct template_head head = {.kind = TEMPLATE_RENDER, .sizes = {(uint32_t)size}};
    const char *const texts[TEXTS] = {json, "", ""};
    assert(size <= LIMIT_TEMPLATE_OUTPUT_BYTES);
    template_process_look(process);
    enum error_code code = process->pid ? ERROR_NONE : template_process_start(process, err);
    return code ? code : template_process_ask(process, &head, texts, out, err);
}

pid_t template_process_pid(const struct template_process *process)
{
    return process->pid;
}
