/* What every fuzz target defines: it gets foreign bytes and must neither crash, leak nor hang.
 *
 * A target is tests/fuzz/fuzz_NAME.c, listed in tests/fuzz/meson.build, with at least one input in
 * tests/fuzz/corpus/NAME/. `./dev test` replays the corpus and mutations of it; `./dev fuzz NAME`
 * searches for more with libFuzzer. An input that broke something goes into the corpus with the
 * repair. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* always 0 */

/* What a target must hold is checked with this, in every build. */
#define FUZZ_CHECK(what)                                                                           \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
