/* How long `medley models` takes on many files: N models in a folder, each with a vocabulary of so
 * many tokens and twice as many merges.
 *
 *     build/release/bench/library [N=500] [TOKENS=32000] [FOLDER=build]
 *
 * cold: nothing is remembered, and the files' pages were dropped from the page cache; first: the
 * same with the pages there; again: with what STATE/library.json remembers. */
#include "library/library.h"
#include "base/clock.h"
#include "gguf_bytes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 291 };

static char folder[4096];

static void library_texts(struct gguf_bytes *bytes, const char *key, uint32_t n,
                          const char *between)
{
    char(*texts)[24] = calloc(n, sizeof *texts);
    const char **list = calloc(n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "t%u%s%u", i, between, i);
        list[i] = texts[i];
    }
    gguf_bytes_texts(bytes, key, list, n);
    free(list);
    free(texts);
}

static void library_token_types(struct gguf_bytes *bytes, uint32_t n)
{
    int32_t *types = calloc(n, sizeof *types);
    for (uint32_t i = 0; i < n; i++)
        types[i] = 1;
    gguf_bytes_array(bytes, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, n, sizeof *types);
    free(types);
}

static const struct buffer *library_make(struct gguf_bytes *bytes, uint32_t n_tokens)
{
    gguf_bytes_text(bytes, "general.architecture", "llama");
    gguf_bytes_text(bytes, "general.name", "bench");
    gguf_bytes_u32(bytes, "llama.context_length", 131072);
    library_texts(bytes, "tokenizer.ggml.tokens", n_tokens, "_");
    library_token_types(bytes, n_tokens);
    library_texts(bytes, "tokenizer.ggml.merges", 2 * n_tokens, " ");
    gguf_bytes_u32(bytes, "tokenizer.ggml.bos_token_id", 0);
    gguf_bytes_u32(bytes, "general.file_type", 15);
    for (uint32_t i = 0; i < TENSORS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.weight", i);
        gguf_bytes_tensor(bytes, name, GGML_TYPE_F32, 1, (int64_t[]){64}, NULL);
    }
    return gguf_bytes_finish(bytes);
}

static void library_path(uint32_t i, char out[4200])
{
    snprintf(out, 4200, "%s/model-%u.gguf", folder, i);
}

static void library_write(uint32_t n, uint32_t n_tokens)
{
    struct gguf_bytes bytes = {0};
    const struct buffer *file = library_make(&bytes, n_tokens);
    char path[4200];
    for (uint32_t i = 0; i < n; i++) {
        library_path(i, path);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, file->data, file->size) != (ssize_t)file->size || fsync(fd)) {
            perror(path);
            exit(1);
        }
        close(fd);
    }
    printf("%u files, headers of %.1f MB each: %u tokens, %d tensors\n", n,
           (double)file->size * 1e-6, n_tokens, TENSORS);
    gguf_bytes_deinit(&bytes);
}

static void library_drop(uint32_t n, bool removes)
{
    char path[4200];
    for (uint32_t i = 0; i < n; i++) {
        library_path(i, path);
        if (removes) {
            unlink(path);
            continue;
        }
        int fd = open(path, O_RDONLY);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static void library_forget(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/library.json", getenv("MEDLEY_STATE_DIR"));
    unlink(path);
}

static double library_time(uint32_t n)
{
    const char *folders[] = {folder};
    const struct library_options options = {folders, 1, true};
    struct library library;
    struct error err;
    const uint64_t before = clock_now_ns();
    if (library_find(&options, &library, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    library_read_headers(&library);
    const double ms = (double)(clock_now_ns() - before) * 1e-6;
    uint32_t good = 0;
    for (uint32_t i = 0; i < library.n; i++)
        good += library.models[i].state == LIBRARY_WHOLE && library.models[i].facts.family[0];
    library_deinit(&library);
    if (good < n) {
        fprintf(stderr, "only %u of %u models were read\n", good, n);
        exit(1);
    }
    return ms;
}

int main(int argc, char **argv)
{
    const uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 500;
    const uint32_t n_tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 32000;
    char state[4200];
    snprintf(folder, sizeof folder, "%s/bench-library", argc > 3 ? argv[3] : "build");
    snprintf(state, sizeof state, "%s/state", folder);
    mkdir(folder, 0700);
    setenv("MEDLEY_STATE_DIR", state, 1);
    unsetenv("MEDLEY_MODELS");
    library_write(n, n_tokens);
    for (int i = 0; i < 3; i++) {
        library_forget();
        library_drop(n, false);
        const double cold = library_time(n);
        library_forget();
        const double first = library_time(n);
        printf("cold %.0f ms, first %.0f ms, again %.1f ms\n", cold, first, library_time(n));
    }
    library_drop(n, true);
    library_forget();
    rmdir(state);
    rmdir(folder);
    return 0;
}
