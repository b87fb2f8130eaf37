/* What the process that decodes pictures answers to its node: any bytes. */
#include "fuzz.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "picture/picture_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOCKET_BYTES = 64 * 1024 /* what fits into it without a reader */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    struct error err = {0};
    struct picture picture;
    if (size > SOCKET_BYTES || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 0;
    FUZZ_CHECK(transfer_send(ends[0], data, size, UINT64_MAX));
    close(ends[0]);
    const enum error_code code = picture_receive(ends[1], UINT64_MAX, &picture, &err);
    close(ends[1]);
    const uint64_t bytes = (uint64_t)picture.width * picture.height * 3;
    FUZZ_CHECK(code ? !picture.rgb : picture.rgb && bytes + sizeof(struct picture_head) <= size);
    mem_free(picture.rgb);
    return 0;
}
