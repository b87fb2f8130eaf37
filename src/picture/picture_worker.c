/* The process's side of picture_process.h. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "picture/decode.h"
#include "picture/picture_process.h"
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The sanitizers' own memory would not fit. */
#if defined __SANITIZE_ADDRESS__
enum { PICTURE_LIMITS_MEMORY = 0 };
#else
enum { PICTURE_LIMITS_MEMORY = 1 };
#endif

static enum error_code picture_enter_sandbox(struct error *err)
{
    static struct sandbox_rules rules;
    const struct sandbox_need need = {.work = SANDBOX_FILES};
    const rlim_t bytes = LIMIT_PICTURE_PROCESS_BYTES;
    if (PICTURE_LIMITS_MEMORY && setrlimit(RLIMIT_DATA, &(struct rlimit){bytes, bytes}))
        return error_set(err, ERROR_IO, "the process that decodes cannot limit its memory: %s",
                         strerror(errno));
    sandbox_rules_make(&need, &rules);
    return sandbox_enter(&rules, err);
}

/* The node is trusted; one that asks for what cannot be is a mistake of ours. */
static uint8_t *picture_receive_file(size_t *size)
{
    struct picture_head head;
    if (!transfer_receive(PICTURE_DESCRIPTOR, &head, sizeof head, UINT64_MAX) || !head.size ||
        head.size > LIMIT_PICTURE_BYTES)
        _exit(1);
    uint8_t *bytes = mem_new(head.size);
    if (!bytes || !transfer_receive(PICTURE_DESCRIPTOR, bytes, head.size, UINT64_MAX))
        _exit(1);
    *size = head.size;
    return bytes;
}

void picture_decode_main(int argc, char **argv)
{
    struct error err = {0};
    struct picture picture = {0};
    if (argc != 2 || strcmp(argv[1], PICTURE_ARGUMENT) != 0)
        return;
    fcntl(PICTURE_DESCRIPTOR, F_SETFD, FD_CLOEXEC);
    enum error_code code = picture_enter_sandbox(&err);
    if (!code) {
        struct decoding from = {.pixels_max = LIMIT_PICTURE_PIXELS};
        from.bytes = picture_receive_file(&from.size);
        code = picture_decode(&from, &picture, &err);
    }
    const struct picture_head head = {code, code ? (uint32_t)strlen(err.text) : 0, picture.width,
                                      picture.height};
    const size_t size = (size_t)picture.width * picture.height * 3;
    if (transfer_send(PICTURE_DESCRIPTOR, &head, sizeof head, UINT64_MAX))
        transfer_send(PICTURE_DESCRIPTOR, code ? err.text : (const char *)picture.rgb,
                      code ? head.size : size, UINT64_MAX);
    _exit(0);
}
