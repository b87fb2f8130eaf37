/* What the headers say: read by a few threads, each taking the next model. */
#include "library/library_impl.h"

#include "base/limits.h"
#include "base/mem.h"
#include "model/architecture.h"
#include "model/gguf_file.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* llama.h's enum llama_ftype, which writers of files keep to. */
static const char *header_file_type(uint32_t type)
{
    static const char *const names[] = {
        [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
        [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
        [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
        [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",
    };
    return type < sizeof names / sizeof *names ? names[type] : NULL;
}

/* The type of most of the weights' bytes, in capitals; and how many elements there are. */
static void header_count(const struct gguf_file *file, struct library_facts *facts)
{
    enum { TYPES = 64 };
    uint64_t bytes[TYPES] = {0}, most = 0;
    const uint64_t n = gguf_file_tensor_count(file);
    for (uint64_t i = 0; i < n; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(file, i);
        uint64_t elements = 1;
        for (int d = 0; d < 4; d++)
            elements *= (uint64_t)tensor->ne[d];
        facts->parameters += elements;
        if (tensor->type < 0 || tensor->type >= TYPES)
            continue;
        bytes[tensor->type] += tensor->size;
        if (bytes[tensor->type] <= most)
            continue;
        most = bytes[tensor->type];
        snprintf(facts->type, sizeof facts->type, "%s", gguf_tensor_type_name(tensor));
    }
    for (char *at = facts->type; *at; at++)
        *at = (char)toupper((unsigned char)*at);
}

/* A text of the file as one line for people. */
static void header_text(const struct gguf_file *file, const char *key, char *out, size_t size)
{
    const char *text;
    size_t length, n = 0;
    out[0] = 0;
    if (gguf_file_text(file, key, &text, &length, NULL))
        return;
    for (size_t i = 0; i < length && n + 1 < size; i++)
        out[n++] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    out[n] = 0;
}

static void header_facts(const struct gguf_file *file, struct library_facts *facts)
{
    char key[LIBRARY_FAMILY + 32];
    uint32_t type;
    *facts = (struct library_facts){0};
    header_text(file, "general.architecture", facts->family, sizeof facts->family);
    header_text(file, "general.name", facts->title, sizeof facts->title);
    snprintf(key, sizeof key, "%s.context_length", facts->family);
    if (gguf_file_u32(file, key, &facts->context, NULL))
        facts->context = 0;
    header_count(file, facts);
    if (!gguf_file_u32(file, "general.file_type", &type, NULL) && header_file_type(type))
        snprintf(facts->type, sizeof facts->type, "%s", header_file_type(type));
    facts->supported = architecture_find(facts->family) != NULL;
}

/* The error without the path before it, which the list shows anyway. */
static void header_say_broken(struct library_model *model, const struct error *err)
{
    const size_t length = strlen(model->path);
    const char *text = err->text;
    if (strncmp(text, model->path, length) == 0 && strncmp(text + length, ": ", 2) == 0)
        text += length + 2;
    model->state = LIBRARY_BROKEN;
    snprintf(model->problem, sizeof model->problem, "%.*s", LIBRARY_PROBLEM - 1, text);
}

/* Looking at a header is no use of the model: what `gc` goes by stays as it was. */
static void header_restore_time(const struct library_model *model)
{
    const struct timespec times[2] = {{.tv_sec = (time_t)(model->used_ns / 1000000000U),
                                       .tv_nsec = (long)(model->used_ns % 1000000000U)},
                                      {.tv_nsec = UTIME_OMIT}};
    if (model->place == LIBRARY_PULLED && model->used_ns)
        utimensat(AT_FDCWD, model->path, times, 0);
}

static enum error_code header_open(const struct library_model *model, struct gguf_file **out,
                                   struct error *err)
{
    enum error_code code = gguf_file_open_listed(model->path, out, err);
    header_restore_time(model);
    return code;
}

void library_read_header(struct library_model *model)
{
    struct gguf_file *file;
    struct error err = {0};
    if (header_open(model, &file, &err)) {
        header_say_broken(model, &err);
        return;
    }
    header_facts(file, &model->facts);
    if (gguf_file_part_count(file) != model->n_parts) { /* known by its first file alone */
        model->n_parts = model->n_parts_here = gguf_file_part_count(file);
        model->bytes = model->bytes_whole = gguf_file_size(file);
    }
    gguf_file_close(file);
    if (!model->facts.family[0]) {
        error_set(&err, ERROR_INVALID, "it does not say general.architecture");
        header_say_broken(model, &err);
    }
}

struct header_work {
    struct library_model **models;
    uint32_t n;
    atomic_uint next;
};

static void *header_thread(void *arg)
{
    struct header_work *work = arg;
    for (uint32_t i; (i = atomic_fetch_add(&work->next, 1)) < work->n;)
        library_read_header(work->models[i]);
    return NULL;
}

static void header_read_all(struct header_work *work)
{
    pthread_t threads[LIMIT_LIBRARY_THREADS];
    uint32_t n = 0;
    /* more than there are cores: they wait for the disk */
    while (n + 1 < LIMIT_LIBRARY_THREADS && n + 1 < work->n &&
           pthread_create(&threads[n], NULL, header_thread, work) == 0)
        n++;
    header_thread(work);
    while (n)
        pthread_join(threads[--n], NULL);
}

void library_read_headers(struct library *library)
{
    struct header_work work = {mem_new_array(library->n ? library->n : 1, sizeof *work.models)};
    struct library_cache *cache = library_cache_open();
    for (uint32_t i = 0; work.models && i < library->n; i++) {
        struct library_model *model = &library->models[i];
        if (model->has_header && !(cache && library_cache_look_up(cache, model)))
            work.models[work.n++] = model;
    }
    library_cache_close(cache);
    if (work.n) {
        header_read_all(&work);
        library_cache_write(library);
    }
    mem_free(work.models);
}
