/* What other programs wrote about models, and what the library remembers: any bytes. */
#include "fuzz.h"

#include "base/mem.h"
#include "library/library_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_name(const char *text)
{
    char name[PATH_MAX];
    uint32_t index, n_parts;
    for (int place = 0; place < LIBRARY_PLACES; place++) {
        if (!library_name_of((enum library_place)place, "/nowhere", text, name))
            continue;
        FUZZ_CHECK(strlen(name) < sizeof name);
        if (library_cut_part(name, &index, &n_parts))
            FUZZ_CHECK(index < n_parts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t done, whole;
    char hash[65];
    char *text = mem_copy_text((const char *)data, size);
    if (library_read_pull(text, size, &done, &whole))
        FUZZ_CHECK(whole && done <= whole);
    if (!library_read_manifest(text, size, hash, &whole))
        FUZZ_CHECK(strlen(hash) == 64 && !strchr(hash, '/'));
    struct library_cache *cache = library_cache_read(text, size);
    struct library_model model = {.path = text, .bytes = 7, .stamp = 9};
    if (library_cache_look_up(cache, &model))
        FUZZ_CHECK(memchr(model.facts.family, 0, LIBRARY_FAMILY) && model.n_parts);
    model.path = (char[]){"/a.gguf"};
    if (library_cache_look_up(cache, &model))
        FUZZ_CHECK(memchr(model.facts.type, 0, LIBRARY_TYPE) && model.n_parts);
    library_cache_close(cache);
    if (size < PATH_MAX)
        check_name(text);
    mem_free(text);
    return 0;
}
