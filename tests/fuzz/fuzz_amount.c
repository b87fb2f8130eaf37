/* Amounts of bytes, as words of the command line and of files. The first byte chooses the rule. */
#include "fuzz.h"

#include "base/amount.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_percent(const char *text, bool takes_all)
{
    uint32_t percent = 101;
    struct error err = {0};
    if (amount_read_percent("share", text, takes_all, &percent, &err))
        FUZZ_CHECK(percent == 101 && err.code == ERROR_INVALID && err.text[0]);
    else
        FUZZ_CHECK(percent <= 100 && (percent || takes_all));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t plain[] = {0, 1, 1 << 30, 1};
    char text[256] = "";
    if (!size || size > sizeof text)
        return 0;
    memcpy(text, data + 1, size - 1);
    const struct amount_rule rule = {.plain_bytes = plain[data[0] & 3],
                                     .min = data[0] & 4 ? 1 << 20 : 0,
                                     .max = data[0] & 8 ? 1 << 30 : 0,
                                     .takes_all = data[0] & 16};
    uint64_t bytes = UINT64_MAX;
    struct error err = {0};
    if (amount_read("--size", text, &rule, &bytes, &err))
        FUZZ_CHECK(bytes == UINT64_MAX && err.code == ERROR_INVALID && err.text[0]);
    else
        FUZZ_CHECK(bytes <= (rule.max ? rule.max : AMOUNT_BYTES_MAX) &&
                   (bytes >= (rule.min ? rule.min : 1) || (rule.takes_all && !bytes)));
    double number = 0;
    const size_t length = amount_number((const char *)data, size, &number);
    FUZZ_CHECK(length <= size && (!length || (isfinite(number) && number >= 0)));
    check_percent(text, rule.takes_all);
    return 0;
}
