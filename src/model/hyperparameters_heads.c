/* How many heads each layer has, and of what size. */
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

enum { HEAD_DIM_MAX = 4096 };

void hyperparameters_read_layers(struct hyperparameters_reader *reader, const char *suffix,
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
        hyperparameters_read_count_or(reader, suffix, min, max, &otherwise, otherwise);
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

void hyperparameters_read_heads(struct hyperparameters_reader *reader, const struct architecture *a,
                                struct hyperparameters *h)
{
    enum { HEADS_MAX = 4096 };
    hyperparameters_read_layers(reader, "attention.head_count", 1, HEADS_MAX, 0, h, set_n_head);
    if (reader->code)
        return;
    hyperparameters_read_layers(reader, "attention.head_count_kv", a->recurrence ? 0 : 1, HEADS_MAX,
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

static void heads_share(struct hyperparameters_reader *reader, struct hyperparameters *h,
                        uint32_t layer, uint32_t n_own)
{
    static const char suffix[] = "attention.shared_kv_layers";
    struct layer_form *form = &h->layers[layer];
    uint32_t from = n_own;
    while (from && h->layers[from - 1].is_windowed != form->is_windowed)
        from--;
    if (!from)
        hyperparameters_fail(reader, suffix, "leaves no layer with keys and values of each kind");
    else if (h->layers[from - 1].n_head_kv != form->n_head_kv)
        hyperparameters_fail(reader, suffix, "has layers that differ in attention.head_count_kv");
    else
        form->kv_layer = from - 1;
}

void hyperparameters_read_shared(struct hyperparameters_reader *reader,
                                 const struct architecture *architecture, struct hyperparameters *h)
{
    enum { LAYER_INPUT_MAX = 1 << 14 };
    uint32_t n_shared = 0;
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->layers[i].kv_layer = i;
    if (!architecture->may_share_kv)
        return;
    hyperparameters_read_count_or(reader, "attention.shared_kv_layers", 0, h->n_layers - 1,
                                  &n_shared, 0);
    hyperparameters_read_count_or(reader, "embedding_length_per_layer_input", 0, LAYER_INPUT_MAX,
                                  &h->n_layer_input, 0);
    for (uint32_t i = h->n_layers - n_shared; i < h->n_layers && !reader->code; i++)
        heads_share(reader, h, i, h->n_layers - n_shared);
    if (reader->code)
        return;
    h->n_carried = h->n_layer_input * h->n_layers;
    for (int windowed = 0; windowed < 2; windowed++) {
        const uint32_t shared = hyperparameters_shared_layer(h, windowed);
        const struct layer_form *form = &h->layers[shared];
        if (shared < h->n_layers)
            h->n_carried += form->n_head_kv * (form->dim_k + form->dim_v);
    }
}
