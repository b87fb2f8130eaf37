/* Forms that upload a file: what is taken points into the body. */
#include "fuzz.h"

#include "api/file_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_inside(struct text text, const char *body, size_t size)
{
    FUZZ_CHECK(text.data >= body && text.data <= body + size);
    FUZZ_CHECK(text.size <= (size_t)(body + size - text.data));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file_form form;
    struct api_error err = {0};
    char *body = malloc(size ? size : 1); /* of its own size, for the sanitizer */
    memcpy(body, data, size);
    if (file_form_read(body, size, &form, &err)) {
        check_inside(form.data, body, size);
        check_inside(form.purpose, body, size);
        FUZZ_CHECK(strlen(form.name) <= FILE_FORM_NAME_BYTES && !strchr(form.name, '/'));
    } else {
        FUZZ_CHECK(err.status == 400 && err.message[0]);
    }
    free(body);
    return 0;
}
