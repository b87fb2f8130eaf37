/* How many heads each layer has, and of what size. */
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

enum { HEAD_DIM_MAX = 4096 };

/* A count that may differ from layer to layer: `each` gets a layer's. Missing: `otherwise`. */
static void read_count_of_layers(struct hyperparameters_reader *reader, const char *suffix,
                                 uint32_t min, uint32_t max, uint32_t otherwise,
                                 struct hyperparameters *h,
                                 void (*each)(struct layer_form *form, uint32_t value))
{
    char key[128];
    uint64_t length = 0;
    if (reader->code)
        return;
    hyperparameters_key_of(reader, suffix, key);
    const bool is_list =
        gguf_file_array(reader->file, key, GGUF_ARRAY_U32, &length, NULL) == ERROR_NONE;
    if (!is_list)
        hyperparameters_read_count_or(reader, suffix, 1, max, &otherwise, otherwise);
    else if (length < h->n_layers)
        hyperparameters_fail(reader, suffix, "has fewer values than there are layers");
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        const uint32_t value = is_list ? gguf_file_array_u32(reader->file, key, i) : otherwise;
        if (value < min || value > max)
            hyperparameters_fail(reader, suffix, "has a value that is out of range");
        else
            each(&h->layers[i], value);
    }
}

static void set_n_head(struct layer_form *form, uint32_t value)
{
    form->n_head = value;
}

static void set_n_head_kv(struct layer_form *form, uint32_t value)
{
    form->n_head_kv = value;
}

/* Gemma 4's smaller kinds: what they have beside is not computed. */
static void heads_refuse_shared(struct hyperparameters_reader *reader)
{
    uint32_t n_shared = 0, n_per_layer = 0;
    hyperparameters_read_count_or(reader, "attention.shared_kv_layers", 0, LIMIT_LAYERS, &n_shared,
                                  0);
    hyperparameters_read_count_or(reader, "embedding_length_per_layer_input", 0, 1 << 20,
                                  &n_per_layer, 0);
    if (!reader->code && (n_shared || n_per_layer))
        reader->code = error_set(reader->err, ERROR_UNSUPPORTED,
                                 "embeddings of each layer, and layers that take the keys and "
                                 "values of others, are not computed (%s E2B and E4B)",
                                 reader->family);
}

void hyperparameters_read_heads(struct hyperparameters_reader *reader, const struct architecture *a,
                                struct hyperparameters *h)
{
    enum { HEADS_MAX = 4096 };
    if (a->has_window_heads)
        heads_refuse_shared(reader);
    read_count_of_layers(reader, "attention.head_count", 1, HEADS_MAX, 0, h, set_n_head);
    if (reader->code)
        return;
    read_count_of_layers(reader, "attention.head_count_kv", a->recurrence ? 0 : 1, HEADS_MAX,
                         h->layers[0].n_head, h, set_n_head_kv);
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++) {
        const struct layer_form *form = &h->layers[i];
        h->n_head = form->n_head > h->n_head ? form->n_head : h->n_head;
        h->n_head_kv = form->n_head_kv > h->n_head_kv ? form->n_head_kv : h->n_head_kv;
        if (form->n_head_kv && form->n_head % form->n_head_kv)
            hyperparameters_fail(reader, "attention.head_count",
                                 "must be a multiple of attention.head_count_kv");
    }
}

void hyperparameters_read_head_sizes(struct hyperparameters_reader *reader,
                                     const struct architecture *architecture,
                                     struct hyperparameters *h)
{
    const uint32_t full_k = h->n_head_dim_k, full_v = h->n_head_dim_v;
    uint32_t window_k = full_k, window_v = full_v, n_rot = 0;
    if (reader->code)
        return;
    if (architecture->has_window_heads) {
        hyperparameters_read_count_or(reader, "attention.key_length_swa", 1, HEAD_DIM_MAX,
                                      &window_k, full_k);
        hyperparameters_read_count_or(reader, "attention.value_length_swa", 1, HEAD_DIM_MAX,
                                      &window_v, full_v);
        hyperparameters_read_count_or(reader, "rope.dimension_count_swa", 2, window_k, &n_rot,
                                      window_k);
        if (n_rot % 2)
            hyperparameters_fail(reader, "rope.dimension_count_swa", "must be even");
    }
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer_form *form = &h->layers[i];
        form->dim_k = form->is_windowed ? window_k : full_k;
        form->dim_v = form->is_windowed ? window_v : full_v;
        form->n_rot = form->is_windowed ? n_rot : 0; /* 0: the model's */
    }
    h->n_head_dim_k = window_k > full_k ? window_k : full_k;
    h->n_head_dim_v = window_v > full_v ? window_v : full_v;
}
