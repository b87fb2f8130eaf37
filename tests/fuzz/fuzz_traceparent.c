/* A client's traceparent: any bytes. What is taken is a trace and a span in hexadecimal digits. */
#include "fuzz.h"

#include "api/trace_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    struct trace_context context;
    if (!trace_context_read((const char *)data, size, &context)) {
        FUZZ_CHECK(!context.trace_id[0] && !context.parent[0]);
        return 0;
    }
    FUZZ_CHECK(strspn(context.trace_id, digits) == 32 && strspn(context.trace_id, "0") < 32);
    FUZZ_CHECK(strspn(context.parent, digits) == 16 && strspn(context.parent, "0") < 16);
    return 0;
}
