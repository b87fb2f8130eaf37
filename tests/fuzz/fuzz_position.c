/* x-request-id and Last-Event-ID as clients send them: any bytes. The first byte is the number of
 * choices. */
#include "fuzz.h"

#include "api/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_written(const struct stream_position *positions, uint32_t n)
{
    struct stream_position again[256] = {0};
    struct buffer out = {0};
    struct api_error err;
    for (uint32_t i = 0; i < n; i++)
        stream_position_write(&positions[i], &out);
    FUZZ_CHECK(!out.failed && stream_positions_read(out.data, out.size, again, n, &err));
    for (uint32_t i = 0; i < n; i++)
        FUZZ_CHECK(again[i].n_events == positions[i].n_events &&
                   again[i].check == positions[i].check &&
                   again[i].is_checked == positions[i].is_checked);
    buffer_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const char *text = (const char *)data + 1;
    const uint32_t n = data[0] ? data[0] : 1;
    struct stream_position positions[256] = {0};
    struct api_error err = {0};
    if (stream_positions_read(text, size - 1, positions, n, &err))
        check_written(positions, n);
    else
        FUZZ_CHECK(err.status == 400 && err.message[0]);
    if (request_id_is_sane(text, size - 1)) {
        char id[LIMIT_REQUEST_ID_BYTES + 1] = {0};
        FUZZ_CHECK(size - 1 <= LIMIT_REQUEST_ID_BYTES);
        memcpy(id, text, size - 1);
        FUZZ_CHECK(request_id_number(id, 0) != request_id_number(id, 1) &&
                   !strpbrk(id, " \r\n\"\\"));
    }
    return 0;
}
