/* What a template's process answers to its node: any bytes. What is taken is UTF-8 within the
 * limits; what is not says why. */
#include "fuzz.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/transfer.h"
#include "model/chat_template_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOCKET_BYTES = 64 * 1024 }; /* what fits into it without a reader */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    bool broken;
    struct error err = {0};
    struct buffer out = {0};
    if (size > SOCKET_BYTES || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 0;
    FUZZ_CHECK(transfer_send(ends[0], data, size, UINT64_MAX));
    close(ends[0]);
    const enum error_code code = template_receive_answer(ends[1], UINT64_MAX, &out, &broken, &err);
    close(ends[1]);
    FUZZ_CHECK(!broken || code);
    FUZZ_CHECK(code ? err.text[0] || !broken : out.size + sizeof(struct template_head) <= size);
    FUZZ_CHECK(!code || !out.size);
    buffer_deinit(&out);
    return 0;
}
