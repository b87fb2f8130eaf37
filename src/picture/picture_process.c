/* The node's side of picture_process.h. */
#include "picture/picture_process.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "picture/decode.h"
#include "sandbox/reader.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { NS_OF_MS = 1000000 };

static const char *picture_program;
static uint32_t picture_limit_ms;

void picture_isolate(const char *program, uint32_t limit_ms)
{
    picture_program = program;
    picture_limit_ms = limit_ms ? limit_ms : LIMIT_PICTURE_MS;
}

/* ---- an answer ---- */

static enum error_code picture_broken(struct error *err)
{
    if (errno == ETIMEDOUT)
        return error_set(err, ERROR_INVALID,
                         "decoding it took too long, and was ended; save it anew, or smaller");
    return error_set(err, ERROR_INVALID,
                     "the process that decodes it has ended; the file is damaged, too large, or "
                     "made to do harm");
}

/* Of an error: one line for people. */
static enum error_code picture_receive_error(int socket, uint64_t until_ns,
                                             const struct picture_head *head, struct error *err)
{
    char text[ERROR_TEXT_MAX] = {0};
    if (!transfer_receive(socket, text, head->size, until_ns))
        return picture_broken(err);
    for (char *at = text; at < text + head->size; at++)
        *at = *at < ' ' || *at >= 0x7f ? '?' : *at;
    return error_set(err, (enum error_code)head->code, "%s", text);
}

static bool picture_head_is_good(const struct picture_head *head)
{
    if (head->code)
        return head->code <= ERROR_INTERNAL && head->size < ERROR_TEXT_MAX && !head->width &&
               !head->height;
    return !head->size && head->width && head->width <= LIMIT_PICTURE_SIDE && head->height &&
           head->height <= LIMIT_PICTURE_SIDE &&
           (uint64_t)head->width * head->height <= LIMIT_PICTURE_PIXELS;
}

enum error_code picture_receive(int socket, uint64_t until_ns, struct picture *out,
                                struct error *err)
{
    struct picture_head head;
    *out = (struct picture){0};
    if (!transfer_receive(socket, &head, sizeof head, until_ns))
        return picture_broken(err);
    if (!picture_head_is_good(&head))
        return error_set(err, ERROR_IO, "the process that decodes it sent what cannot be");
    if (head.code)
        return picture_receive_error(socket, until_ns, &head, err);
    const size_t size = (size_t)head.width * head.height * 3;
    uint8_t *rgb = mem_new(size);
    if (!rgb)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u x %u pixels", head.width,
                         head.height);
    if (!transfer_receive(socket, rgb, size, until_ns)) {
        const enum error_code code = picture_broken(err);
        mem_free(rgb);
        return code;
    }
    *out = (struct picture){head.width, head.height, rgb};
    return ERROR_NONE;
}

/* ---- its process ---- */

enum error_code picture_read(const void *bytes, size_t size, struct picture *out, struct error *err)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)picture_limit_ms * NS_OF_MS;
    const struct picture_head head = {.size = (uint32_t)size};
    int socket = -1;
    pid_t pid = 0;
    *out = (struct picture){0};
    if (!size)
        return error_set(err, ERROR_INVALID, "it is empty");
    if (size > LIMIT_PICTURE_BYTES)
        return error_set(err, ERROR_INVALID,
                         "its file has %zu bytes; %d at most. Scale it down, or save it as JPEG",
                         size, LIMIT_PICTURE_BYTES);
    if (!picture_program)
        return picture_decode(&(const struct decoding){bytes, size, LIMIT_PICTURE_PIXELS}, out,
                              err);
    const int failure =
        reader_start_with_socket(picture_program, PICTURE_ARGUMENT, false, &socket, &pid);
    if (failure)
        return error_set(err, ERROR_IO, "the process that decodes it cannot be started: %s",
                         strerror(failure));
    enum error_code code = ERROR_NONE;
    if (!transfer_send(socket, &head, sizeof head, until_ns) ||
        !transfer_send(socket, bytes, size, until_ns))
        code = picture_broken(err);
    else
        code = picture_receive(socket, until_ns, out, err);
    close(socket);
    reader_end(pid);
    assert(code ? !out->rgb : out->rgb != NULL);
    return code;
}
