/* The files of --cert and --key: any bytes, the first says where the one ends and the other begins.
 * Holds: what is refused says why and leaves nothing; what is taken is a certificate and its key.
 */
#include "fuzz.h"

#include "trust/tls_pair.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tls_pair pair = {0};
    struct error err = {0};
    if (!size)
        return 0;
    const size_t left = size - 1, split = left * data[0] / 255;
    const enum error_code code =
        tls_pair_parse(data + 1, split, data + 1 + split, left - split, &pair, &err);
    if (code)
        FUZZ_CHECK(err.text[0] && !pair.key && !pair.certificate && !pair.chain);
    else
        FUZZ_CHECK(pair.key && pair.certificate);
    tls_pair_deinit(&pair);
    return 0;
}
