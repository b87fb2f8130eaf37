/* An access token as a client sends it: any bytes. One that is taken has one text only: the same
 * bytes with any one changed are not. */
#include "fuzz.h"

#include "trust/access_token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES] = {0};
    char text[ACCESS_TOKEN_TEXT], unknown[8];
    uint32_t scopes;
    if (access_token_read((const char *)data, size, hash) == ACCESS_TOKEN_GOOD) {
        FUZZ_CHECK(size == sizeof text - 1);
        memcpy(text, data, size);
        text[size - 1] ^= 1;
        FUZZ_CHECK(access_token_read(text, size, hash) != ACCESS_TOKEN_GOOD);
    }
    text[0] = 0;
    memcpy(text, data, size < sizeof text - 1 ? size : sizeof text - 1);
    text[size < sizeof text - 1 ? size : sizeof text - 1] = 0;
    if (access_scopes_parse(text, &scopes, unknown, sizeof unknown))
        FUZZ_CHECK(scopes && !(scopes & ~(uint32_t)ACCESS_SCOPES_ALL));
    access_token_name_is_valid(text);
    return 0;
}
