/* What every fuzz target defines: it gets foreign bytes and must neither crash, leak nor hang.
 *
 * A target is tests/fuzz/fuzz_NAME.c, listed in tests/fuzz/meson.build, with at least one input in
 * tests/fuzz/corpus/NAME/. `./dev test` replays the corpus; `./dev fuzz NAME` searches for more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* always 0 */
