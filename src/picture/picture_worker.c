/* The process's side of picture_process.h. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "picture/decode.h"
#include "picture/picture_process.h"
#include "sandbox/reader.h"

#include <string.h>
#include <unistd.h>

/* The node is trusted; one that asks for what cannot be is a mistake of ours. */
static uint8_t *picture_receive_file(size_t *size)
{
    struct picture_head head;
    if (!transfer_receive(READER_DESCRIPTOR, &head, sizeof head, UINT64_MAX) || !head.size ||
        head.size > LIMIT_PICTURE_BYTES)
        _exit(1);
    uint8_t *bytes = mem_new(head.size);
    if (!bytes || !transfer_receive(READER_DESCRIPTOR, bytes, head.size, UINT64_MAX))
        _exit(1);
    *size = head.size;
    return bytes;
}

void picture_decode_main(int argc, char **argv)
{
    struct error err = {0};
    struct picture picture = {0};
    if (!reader_is_asked(argc, argv, PICTURE_ARGUMENT))
        return;
    enum error_code code = reader_enter_sandbox(LIMIT_PICTURE_PROCESS_BYTES, &err);
    if (!code) {
        struct decoding from = {.pixels_max = LIMIT_PICTURE_PIXELS};
        from.bytes = picture_receive_file(&from.size);
        code = picture_decode(&from, &picture, &err);
    }
    const struct picture_head head = {code, code ? (uint32_t)strlen(err.text) : 0, picture.width,
                                      picture.height};
    const size_t size = (size_t)picture.width * picture.height * 3;
    if (transfer_send(READER_DESCRIPTOR, &head, sizeof head, UINT64_MAX))
        transfer_send(READER_DESCRIPTOR, code ? err.text : (const char *)picture.rgb,
                      code ? head.size : size, UINT64_MAX);
    _exit(0);
}
