#include "engine/weight_convert.h"

#include "base/mem.h"
#include "model/weight_type.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

enum { PIECE_WEIGHTS = 1 << 18, CONVERTERS_MAX = 16 };

struct weight_conversion {
    const struct gguf_tensor *stored;
    int type;
    const uint8_t *from;
    uint8_t *to;
    uint64_t from_row, to_row; /* bytes */
    int64_t n_rows, n_rows_piece;
    atomic_int_fast64_t next; /* row */
    pthread_mutex_t lock;
    enum error_code code; /* under it, as the error */
    struct error error;
};

static void conversion_fail(struct weight_conversion *conversion, enum error_code code,
                            const struct error *why)
{
    pthread_mutex_lock(&conversion->lock);
    if (!conversion->code)
        conversion->error = *why;
    conversion->code = code;
    pthread_mutex_unlock(&conversion->lock);
    atomic_store(&conversion->next, conversion->n_rows);
}

static void *conversion_run(void *arg)
{
    struct weight_conversion *c = arg;
    const int64_t n_columns = c->stored->ne[0];
    struct error err;
    float *scratch = mem_new_array((size_t)(c->n_rows_piece * n_columns), sizeof *scratch);
    if (!scratch) {
        conversion_fail(c, error_set(&err, ERROR_NO_MEMORY, "not enough memory to convert weights"),
                        &err);
        return NULL;
    }
    for (;;) {
        const int64_t first = atomic_fetch_add(&c->next, c->n_rows_piece);
        if (first >= c->n_rows)
            break;
        const int64_t left = c->n_rows - first, n = left < c->n_rows_piece ? left : c->n_rows_piece;
        const enum error_code code =
            weight_type_convert(c->stored->type, c->from + c->from_row * (uint64_t)first, c->type,
                                c->to + c->to_row * (uint64_t)first, n, n_columns, scratch, &err);
        if (code)
            conversion_fail(c, code, &err);
    }
    mem_free(scratch);
    return NULL;
}

static void conversion_run_on(struct weight_conversion *conversion, uint32_t n_threads)
{
    pthread_t threads[CONVERTERS_MAX];
    uint32_t n_started = 0;
    while (n_started + 1 < n_threads && n_started < CONVERTERS_MAX &&
           pthread_create(&threads[n_started], NULL, conversion_run, conversion) == 0)
        n_started++;
    conversion_run(conversion); /* this thread, too: no other at all is still right */
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
}

enum error_code weight_convert(const struct tensor_copy *copy, const struct gguf_file *file,
                               uint32_t n_threads, struct error *err)
{
    const struct gguf_tensor *stored = copy->stored;
    const bool is_plain = ggml_backend_buffer_is_host(copy->tensor->buffer);
    uint8_t *bounce = is_plain ? NULL : mem_new_array(copy->source->size, 1);
    assert(stored->type != copy->source->type && !copy->mapped);
    if (!is_plain && !bounce)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to convert tensor %s",
                         stored->name);
    struct weight_conversion conversion = {
        .stored = stored,
        .type = copy->source->type,
        .from = gguf_file_bytes(file) + stored->offset,
        .to = is_plain ? copy->tensor->data : bounce,
        .from_row = weight_type_row_bytes(stored->type, stored->ne[0]),
        .to_row = weight_type_row_bytes(copy->source->type, stored->ne[0]),
        .n_rows = stored->ne[1] * stored->ne[2] * stored->ne[3],
        .n_rows_piece = stored->ne[0] < PIECE_WEIGHTS ? PIECE_WEIGHTS / stored->ne[0] : 1,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    assert(conversion.to_row * (uint64_t)conversion.n_rows == copy->source->size);
    conversion_run_on(&conversion, n_threads);
    if (!conversion.code && bounce)
        ggml_backend_tensor_set(copy->tensor, bounce, 0, copy->source->size);
    mem_free(bounce);
    pthread_mutex_destroy(&conversion.lock);
    return conversion.code ? error_set(err, conversion.code, "tensor %s: %s", stored->name,
                                       conversion.error.text)
                           : ERROR_NONE;
}
