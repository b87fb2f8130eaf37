/* The shape of the state of layers that keep one. */
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

enum {
    KERNEL_MAX = 64,
    STATE_HEADS_MAX = 4096,
    STATE_DIM_MAX = 4096,
    STATE_VALUES_MAX = 1 << 26, /* of a layer and a sequence: 256 MiB */
};

static void recurrence_read_list(struct hyperparameters_reader *reader, const char *suffix,
                                 struct hyperparameters *h)
{
    char key[128];
    uint64_t length = 0;
    reader->code = gguf_file_array(reader->file, hyperparameters_key_of(reader, suffix, key),
                                   GGUF_ARRAY_BOOL, &length, reader->err);
    if (!reader->code && length < h->n_layers)
        hyperparameters_fail(reader, suffix, "has fewer values than there are layers");
    for (uint32_t i = 0; i < h->n_layers && !reader->code; i++)
        h->layers[i].is_recurrent = gguf_file_array_bool(reader->file, key, i);
}

/* By a list or a period in the file, or by the number of KV heads. */
static void recurrence_read_layers(struct hyperparameters_reader *reader,
                                   const struct architecture *a, struct hyperparameters *h)
{
    static const char suffix[] = "attention.recurrent_layers";
    uint32_t period = 0, n_attending = 0;
    if (a->attention_period)
        hyperparameters_read_count_or(reader, "full_attention_interval", 1, LIMIT_LAYERS, &period,
                                      a->attention_period);
    if (reader->code)
        return;
    for (uint32_t i = 0; i < h->n_layers; i++)
        h->layers[i].is_recurrent = period ? (i + 1) % period != 0 : !h->layers[i].n_head_kv;
    if (a->attention_period && hyperparameters_has(reader, suffix))
        recurrence_read_list(reader, suffix, h);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer_form *form = &h->layers[i];
        form->has_no_mixer = a->is_one_branch && !form->has_no_ffn;
        form->is_recurrent &= !form->has_no_mixer;
        if (form->is_recurrent || form->has_no_mixer)
            form->n_head_kv = 0;
        n_attending += form->n_head_kv > 0;
    }
    if (!n_attending)
        hyperparameters_fail(reader, "attention.head_count_kv", "leaves no layer that attends");
}

/* ssm.*: Mamba-2 and the gated delta rule of Qwen. */
static void recurrence_read_state(struct hyperparameters_reader *reader,
                                  const struct architecture *a, struct hyperparameters *h)
{
    struct recurrent_form *form = &h->recurrent;
    uint32_t inner = 0;
    hyperparameters_read_count(reader, "ssm.conv_kernel", 2, KERNEL_MAX, &form->kernel);
    hyperparameters_read_count(reader, "ssm.state_size", 1, STATE_DIM_MAX, &form->dim_k);
    hyperparameters_read_count(reader, "ssm.group_count", 1, STATE_HEADS_MAX, &form->n_group);
    hyperparameters_read_count(reader, "ssm.time_step_rank", 1, STATE_HEADS_MAX, &form->n_head);
    hyperparameters_read_count(reader, "ssm.inner_size", 1, STATE_VALUES_MAX, &inner);
    if (reader->code)
        return;
    if (form->n_head % form->n_group)
        hyperparameters_fail(reader, "ssm.time_step_rank", "must be a multiple of ssm.group_count");
    if (inner % form->n_head || inner / form->n_head > STATE_DIM_MAX)
        hyperparameters_fail(reader, "ssm.inner_size", "must be a multiple of ssm.time_step_rank");
    form->dim_v = inner / form->n_head;
    form->channels = inner + 2 * form->n_group * form->dim_k;
    if (a->recurrence == RECURRENCE_DELTA && form->dim_k != form->dim_v)
        hyperparameters_fail(reader, "ssm.inner_size",
                             "must be ssm.time_step_rank times ssm.state_size");
}

/* Kimi's delta rule: as many heads as attention has, of kda.head_dim. */
static void recurrence_read_channels(struct hyperparameters_reader *reader,
                                     const struct architecture *a, struct hyperparameters *h)
{
    struct recurrent_form *form = &h->recurrent;
    hyperparameters_read_count(reader, "ssm.conv_kernel", 2, KERNEL_MAX, &form->kernel);
    hyperparameters_read_count(reader, "kda.head_dim", 1, STATE_DIM_MAX, &form->dim_k);
    hyperparameters_read_number_or(reader, "kda.gate_lower_bound", &form->decay_bound, 0);
    form->dim_v = form->dim_k;
    form->n_head = form->n_group = h->n_head;
    form->channels = 3 * form->n_head * form->dim_k;
    if (a->delta_decay_is_bounded && !(form->decay_bound < 0))
        hyperparameters_fail(reader, "kda.gate_lower_bound", "must be below 0");
}

void hyperparameters_read_recurrence(struct hyperparameters_reader *reader,
                                     const struct architecture *architecture,
                                     struct hyperparameters *h)
{
    struct recurrent_form *form = &h->recurrent;
    if (reader->code || !architecture->recurrence)
        return;
    recurrence_read_layers(reader, architecture, h);
    switch (architecture->recurrence) {
    case RECURRENCE_NONE:
        break;
    case RECURRENCE_SHORT_CONVOLUTION:
        hyperparameters_read_count(reader, "shortconv.l_cache", 2, KERNEL_MAX, &form->kernel);
        form->channels = h->n_embd;
        break;
    case RECURRENCE_MAMBA2:
    case RECURRENCE_DELTA:
        recurrence_read_state(reader, architecture, h);
        break;
    case RECURRENCE_DELTA_CHANNELS:
        recurrence_read_channels(reader, architecture, h);
        break;
    case RECURRENCE_LIGHTNING:
        form->n_head = form->n_group = h->n_head;
        form->dim_k = form->dim_v = h->n_head_dim_v;
        break;
    }
    const uint64_t values = (uint64_t)form->n_head * form->dim_k * form->dim_v;
    if (values > STATE_VALUES_MAX || (uint64_t)form->kernel * form->channels > STATE_VALUES_MAX)
        hyperparameters_fail(reader, "attention.head_count", "makes a state that is too large");
}
