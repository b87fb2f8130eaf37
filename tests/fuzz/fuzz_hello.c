/* Fuzz target: the first message on a channel, as a hello and as a refusal. Holds: what is refused
 * has a message; what is taken is within its limits, printable, and the same after it was written
 * and read again. */
#include "fuzz.h"

#include "mesh/hello.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_words(const char *words, size_t size)
{
    FUZZ_CHECK(memchr(words, '\0', size) != NULL);
    for (; *words; words++)
        FUZZ_CHECK(*words >= ' ' && *words <= '~');
}

static void check_hello(const uint8_t *data, size_t size)
{
    struct hello hello, again;
    struct error err = {0};
    const enum error_code code = hello_read(data, size, &hello, &err);
    if (code) {
        FUZZ_CHECK(code == ERROR_INVALID && err.text[0]);
        return;
    }
    check_words(hello.software, sizeof hello.software);
    FUZZ_CHECK(hello.version.major > 0);
    if (hello.version.major != LINK_MAJOR)
        return;
    FUZZ_CHECK(hello.n_channels >= 2 && hello.n_channels <= LIMIT_LINK_CHANNELS &&
               hello.channel < hello.n_channels);
    FUZZ_CHECK(hello.n_greeting <= LIMIT_GREETING_BYTES);
    uint8_t bytes[LIMIT_HELLO_BYTES];
    FUZZ_CHECK(hello_read(bytes, hello_write(&hello, bytes), &again, &err) == ERROR_NONE);
    FUZZ_CHECK(memcmp(&hello, &again, sizeof hello) == 0);
}

static void check_refusal(const uint8_t *data, size_t size)
{
    struct refusal refusal, again;
    struct error err = {0};
    if (refusal_read(data, size, &refusal, &err)) {
        FUZZ_CHECK(err.code == ERROR_INVALID && err.text[0]);
        return;
    }
    check_words(refusal.text, sizeof refusal.text);
    FUZZ_CHECK(refusal.reason <= REFUSAL_STOPPING);
    uint8_t bytes[LIMIT_HELLO_BYTES];
    FUZZ_CHECK(refusal_read(bytes, refusal_write(&refusal, bytes), &again, &err) == ERROR_NONE);
    FUZZ_CHECK(again.reason == refusal.reason && strcmp(again.text, refusal.text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_hello(data, size);
    check_refusal(data, size);
    return 0;
}
