#include "precision/convert.h"

#include "base/durable_file.h"
#include "base/large_pages.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/weight_type.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Weights of one piece: 4 MiB of floats. A row is never divided. */
enum { CONVERT_PIECE_WEIGHTS = 1 << 20, CONVERT_THREADS_MAX = 256 };

/* Rows of one tensor, from one type to another. */
struct convert_rows {
    const struct gguf_tensor *tensor;
    const uint8_t *from;
    int type, fd;
    uint64_t offset; /* of the tensor in fd */
    int64_t n_rows, n_rows_piece;
};

struct converter {
    const struct convert_job *job;
    uint64_t scratch_weights, scratch_bytes; /* the largest piece: as floats, and as written */
    pthread_mutex_t lock;                    /* of all below */
    uint64_t next_tensor;
    int64_t next_row;
    bool failed;
    struct error error;
};

struct convert_memory {
    float *weights;
    uint8_t *bytes;
};

static struct convert_rows convert_rows_of(const struct gguf_file *file, uint64_t i, int type,
                                           int fd, uint64_t offset)
{
    const struct gguf_tensor *tensor = gguf_file_tensor(file, i);
    const int64_t piece = CONVERT_PIECE_WEIGHTS / tensor->ne[0];
    return (struct convert_rows){
        .tensor = tensor,
        .from = gguf_file_bytes(file) + tensor->offset,
        .type = type,
        .fd = fd,
        .offset = offset,
        .n_rows = tensor->ne[1] * tensor->ne[2] * tensor->ne[3],
        .n_rows_piece = piece ? piece : 1,
    };
}

static enum error_code convert_memory_init(struct convert_memory *memory, uint64_t n_weights,
                                           uint64_t n_bytes, struct error *err)
{
    *memory =
        (struct convert_memory){mem_new_array(n_weights, sizeof(float)), mem_new_array(n_bytes, 1)};
    return memory->weights && memory->bytes
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "not enough memory to convert weights");
}

static void convert_memory_deinit(struct convert_memory *memory)
{
    mem_free(memory->weights);
    mem_free(memory->bytes);
}

/* Rows from `first` on, at most a piece. A type that stays is copied as it is. */
static enum error_code convert_piece(const struct convert_rows *rows, int64_t first,
                                     struct convert_memory *memory, struct error *err)
{
    const struct gguf_tensor *tensor = rows->tensor;
    const int64_t left = rows->n_rows - first,
                  n = left < rows->n_rows_piece ? left : rows->n_rows_piece;
    const uint64_t from_bytes = weight_type_row_bytes(tensor->type, tensor->ne[0]),
                   to_bytes = weight_type_row_bytes(rows->type, tensor->ne[0]);
    const void *from = rows->from + from_bytes * (uint64_t)first, *out = from;
    assert(n > 0);
    if (rows->type != tensor->type) {
        enum error_code code = weight_type_convert(tensor->type, from, rows->type, memory->bytes, n,
                                                   tensor->ne[0], memory->weights, err);
        if (code)
            return err ? error_wrap(err, "tensor %s", tensor->name) : code;
        out = memory->bytes;
    }
    const uint64_t at = rows->offset + to_bytes * (uint64_t)first, size = to_bytes * (uint64_t)n;
    large_pages_expect(rows->fd, at, size);
    const int reason = pwrite_all(rows->fd, out, size, at);
    return reason ? error_set(err, ERROR_IO, "cannot write the new file: %s", strerror(reason))
                  : ERROR_NONE;
}

/* The next piece that nobody has taken; false: there is none, or one has failed. */
static bool converter_take(struct converter *converter, struct convert_rows *rows, int64_t *first)
{
    const struct convert_job *job = converter->job;
    bool taken = false;
    pthread_mutex_lock(&converter->lock);
    if (!converter->failed && converter->next_tensor < gguf_file_tensor_count(job->file)) {
        const uint64_t i = converter->next_tensor;
        *rows = convert_rows_of(job->file, i, job->types[i], job->fd, job->header->offsets[i]);
        *first = converter->next_row;
        converter->next_row += rows->n_rows_piece;
        if (converter->next_row >= rows->n_rows) {
            converter->next_tensor++;
            converter->next_row = 0;
        }
        taken = true;
    }
    pthread_mutex_unlock(&converter->lock);
    return taken;
}

static void *converter_run(void *arg)
{
    struct converter *converter = arg;
    struct convert_memory memory;
    struct error err;
    enum error_code code =
        convert_memory_init(&memory, converter->scratch_weights, converter->scratch_bytes, &err);
    struct convert_rows rows;
    int64_t first;
    while (!code && converter_take(converter, &rows, &first))
        code = convert_piece(&rows, first, &memory, &err);
    convert_memory_deinit(&memory);
    pthread_mutex_lock(&converter->lock);
    if (code && !converter->failed) {
        converter->failed = true;
        converter->error = err;
    }
    pthread_mutex_unlock(&converter->lock);
    return NULL;
}

static void converter_size(struct converter *converter)
{
    const struct convert_job *job = converter->job;
    for (uint64_t i = 0; i < gguf_file_tensor_count(job->file); i++) {
        const struct convert_rows rows = convert_rows_of(job->file, i, job->types[i], -1, 0);
        const int64_t n = rows.n_rows < rows.n_rows_piece ? rows.n_rows : rows.n_rows_piece;
        const uint64_t bytes = weight_type_row_bytes(rows.type, rows.tensor->ne[0]) * (uint64_t)n;
        if (bytes > converter->scratch_bytes)
            converter->scratch_bytes = bytes;
        if ((uint64_t)(n * rows.tensor->ne[0]) > converter->scratch_weights)
            converter->scratch_weights = (uint64_t)(n * rows.tensor->ne[0]);
    }
}

enum error_code convert_write(const struct convert_job *job, struct error *err)
{
    struct converter converter = {.job = job, .scratch_bytes = 1, .scratch_weights = 1};
    pthread_t threads[CONVERT_THREADS_MAX];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = job->n_threads ? job->n_threads : online > 0 ? (uint32_t)online : 1, started = 0;
    if (n > CONVERT_THREADS_MAX)
        n = CONVERT_THREADS_MAX;
    const int reason = pwrite_all(job->fd, job->header->bytes, job->header->size, 0);
    if (reason)
        return error_set(err, ERROR_IO, "cannot write the new file: %s", strerror(reason));
    converter_size(&converter);
    pthread_mutex_init(&converter.lock, NULL);
    while (started + 1 < n &&
           pthread_create(&threads[started], NULL, converter_run, &converter) == 0)
        started++;
    converter_run(&converter);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&converter.lock);
    if (converter.failed)
        return error_set(err, converter.error.code, "%s", converter.error.text);
    return gguf_file_check_whole(job->file, err);
}

enum error_code convert_tensor(const struct gguf_file *file, uint64_t tensor, int type, int fd,
                               uint64_t offset, struct error *err)
{
    const struct convert_rows rows = convert_rows_of(file, tensor, type, fd, offset);
    const int64_t n = rows.n_rows < rows.n_rows_piece ? rows.n_rows : rows.n_rows_piece;
    struct convert_memory memory;
    enum error_code code =
        convert_memory_init(&memory, (uint64_t)(n * rows.tensor->ne[0]),
                            weight_type_row_bytes(type, rows.tensor->ne[0]) * (uint64_t)n, err);
    for (int64_t first = 0; first < rows.n_rows && !code; first += rows.n_rows_piece)
        code = convert_piece(&rows, first, &memory, err);
    convert_memory_deinit(&memory);
    return code ? code : gguf_file_check_whole(file, err);
}
