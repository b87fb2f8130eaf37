/* How long a model takes to open before any of its weights are read: its headers walked and
 * checked, its vocabulary and tensors known. Of a model in parts, all of them.
 *
 *     build/release/bench/headers FILE [ROUNDS=20]
 *
 * cold: the files' pages were dropped from the page cache; warm: they are there. `headers`:
 * gguf_file_open(); `model`: model_open(), which planning uses. */
#include "base/clock.h"
#include "base/limits.h"
#include "model/gguf_file.h"
#include "model/model.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HEADERS_ROUNDS_MAX = 1000 };

static void headers_die(const struct error *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static double headers_open_file(const char *path, bool drops)
{
    struct gguf_file *file;
    struct error err;
    const uint64_t begin_ns = clock_now_ns();
    if (gguf_file_open(path, &file, &err))
        headers_die(&err);
    const double ms = (double)(clock_now_ns() - begin_ns) * 1e-6;
    int descriptors[LIMIT_MODEL_PARTS];
    const uint32_t n = gguf_file_part_count(file);
    for (uint32_t i = 0; i < n; i++)
        descriptors[i] = dup(gguf_file_part_descriptor(file, i));
    gguf_file_close(file); /* pages that are mapped are not dropped */
    for (uint32_t i = 0; i < n; i++) {
        if (drops)
            posix_fadvise(descriptors[i], 0, 0, POSIX_FADV_DONTNEED);
        close(descriptors[i]);
    }
    return ms;
}

static double headers_open_model(const char *path, bool drops)
{
    struct model *model;
    struct error err;
    headers_open_file(path, drops);
    const uint64_t begin_ns = clock_now_ns();
    if (model_open(path, &model, &err))
        headers_die(&err);
    const double ms = (double)(clock_now_ns() - begin_ns) * 1e-6;
    model_close(model);
    return ms;
}

static int headers_compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void headers_time(const char *what, const char *path, uint32_t rounds,
                         double (*open_once)(const char *path, bool drops), bool drops)
{
    static double ms[HEADERS_ROUNDS_MAX];
    open_once(path, drops);
    for (uint32_t i = 0; i < rounds; i++)
        ms[i] = open_once(path, drops);
    qsort(ms, rounds, sizeof *ms, headers_compare);
    printf("%s, %s: median %.1f ms, least %.1f ms\n", what, drops ? "cold" : "warm", ms[rounds / 2],
           ms[0]);
}

static void headers_describe(const char *path)
{
    struct gguf_file *file;
    struct error err;
    if (gguf_file_open(path, &file, &err))
        headers_die(&err);
    printf("%u files, %" PRIu64 " tensors, %" PRIu64 " bytes\n", gguf_file_part_count(file),
           gguf_file_tensor_count(file), gguf_file_size(file));
    gguf_file_close(file);
}

int main(int argc, char **argv)
{
    const uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 20;
    if (argc < 2 || !rounds || rounds > HEADERS_ROUNDS_MAX) {
        fprintf(stderr, "Usage: headers FILE [ROUNDS, at most %d]\n", HEADERS_ROUNDS_MAX);
        return 2;
    }
    headers_describe(argv[1]);
    for (int drops = 0; drops < 2; drops++) {
        headers_time("headers", argv[1], rounds, headers_open_file, drops != 0);
        headers_time("model", argv[1], rounds, headers_open_model, drops != 0);
    }
    return 0;
}
