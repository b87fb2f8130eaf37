/* What another node answers of a device's last minute: any bytes. What is taken is JSON. */
#include "fuzz.h"

#include "base/buffer.h"
#include "cluster/event.h"
#include "node/history.h"

#include <yyjson.h>

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ProtobufCMessage *message = NULL;
    struct error err;
    if (message_decode(&node__history_answer__descriptor, data, size, &message, &err))
        return 0;
    const Node__HistoryAnswer *answer = (const Node__HistoryAnswer *)message;
    if (!history_check(answer, &err)) {
        struct buffer text = {0};
        history_write(answer, 1795000000000, &text);
        yyjson_doc *doc = yyjson_read(text.data, text.size, 0);
        FUZZ_CHECK(doc && yyjson_is_arr(yyjson_obj_get(yyjson_doc_get_root(doc), "power_w")));
        FUZZ_CHECK(yyjson_arr_size(yyjson_obj_get(yyjson_doc_get_root(doc), "power_w")) ==
                   answer->n_power_dw);
        yyjson_doc_free(doc);
        buffer_deinit(&text);
    }
    message_free(message);
    return 0;
}
