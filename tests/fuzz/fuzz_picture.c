/* A picture's file: any bytes, in this process. What is decoded has pixels, within the limits; what
 * is not says why. */
#include "fuzz.h"

#include "base/mem.h"
#include "picture/decode.h"

#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 256 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct picture picture;
    struct error err = {0};
    const struct decoding from = {data, size, PIXELS};
    const enum error_code code = picture_decode(&from, &picture, &err);
    FUZZ_CHECK(code ? !picture.rgb && err.text[0] : picture.rgb != NULL);
    FUZZ_CHECK((uint64_t)picture.width * picture.height <= PIXELS);
    unsigned sum = 0;
    for (size_t i = 0; i < (size_t)picture.width * picture.height * 3; i++)
        sum += picture.rgb[i]; /* all of it is there */
    FUZZ_CHECK(sum <= (uint64_t)picture.width * picture.height * 3 * UINT8_MAX);
    mem_free(picture.rgb);
    return 0;
}
