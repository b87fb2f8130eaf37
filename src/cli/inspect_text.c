/* The text of `medley inspect`, for people. */
#include "base/size_text.h"
#include "cli/inspect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEMPLATE_LINES = 4, TEMPLATE_LINE_BYTES = 100 };

struct quantity {
    char text[32];
};

/* 1000-based, for counts: "1.24 G". */
static struct quantity count_text(uint64_t count)
{
    static const char units[] = " kMGTPE";
    struct quantity out;
    double n = (double)count;
    int unit = 0;
    while (n >= 999.5 && units[unit + 1]) {
        n /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(out.text, sizeof out.text, "%" PRIu64, count);
    else
        snprintf(out.text, sizeof out.text, "%.*f %c",
                 n < 10    ? 2
                 : n < 100 ? 1
                           : 0,
                 n, units[unit]);
    return out;
}

/* Foreign text on one line, at most `most` bytes of it. */
static void print_clean(const char *text, size_t size, size_t most)
{
    struct buffer clean = {0};
    bool cut = size > most;
    while (cut && most > 0 &&
           ((unsigned char)text[most] & 0xc0) == 0x80) /* not within a character */
        most--;
    inspect_clean_text(&clean, text, cut ? most : size, true);
    printf("%s%s", clean.data ? clean.data : "", cut ? "..." : "");
    buffer_deinit(&clean);
}

static void inspect_text_line(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void inspect_text_line(const char *name, const char *format, ...)
{
    va_list args;
    printf("  %-18s", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static void inspect_text_print_file(const struct gguf_file *file)
{
    fputs("  file              ", stdout);
    print_clean(gguf_file_path(file), strlen(gguf_file_path(file)), 4096);
    const uint32_t n_files = gguf_file_part_count(file);
    printf(n_files > 1 ? " and %u more\n" : "\n", n_files - 1);
    inspect_text_line("", "%s, GGUF version %u, %" PRIu64 " keys, %" PRIu64 " tensors",
                      size_text(gguf_file_size(file)).text, gguf_file_version(file),
                      gguf_file_key_count(file), gguf_file_tensor_count(file));
}

static void print_weights(const struct inspection *inspection)
{
    struct inspect_type types[INSPECT_TYPES_MAX];
    uint32_t n_types = inspect_types(inspection->file, types);
    for (uint32_t i = 0; i < n_types; i++)
        inspect_text_line(i ? "" : "weights", "%-8s %10s in %" PRIu64 " tensor%s", types[i].name,
                          size_text(types[i].bytes).text, types[i].n_tensors,
                          types[i].n_tensors == 1 ? "" : "s");
}

static void print_rope(const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    bool neox = model_architecture(model)->rope == ROPE_NEOX;
    inspect_text_line("rope", "%s, %u of %u dimensions, base %g", neox ? "neox" : "norm", h->n_rot,
                      h->n_head_dim_k, (double)h->rope_base);
    switch (inspect_rope_scaling(h)) {
    case ROPE_SCALING_NONE:
        inspect_text_line("rope scaling", "%s",
                          model_tensor(model, TENSOR_ROPE_FREQS, 0) ? "factors, in rope_freqs"
                                                                    : "none");
        break;
    case ROPE_SCALING_LINEAR:
        inspect_text_line("rope scaling", "linear, x%g", 1 / (double)h->rope_frequency_scale);
        break;
    case ROPE_SCALING_YARN:
        inspect_text_line("rope scaling", "yarn, x%g, from %u tokens",
                          1 / (double)h->rope_frequency_scale, h->n_context_original);
        break;
    case ROPE_SCALING_LONGROPE:
        inspect_text_line("rope scaling", "longrope, from %u tokens", h->n_context_original);
        break;
    }
}

static void print_window(const struct hyperparameters *h)
{
    uint32_t n_windowed = 0;
    for (uint32_t i = 0; i < h->n_layers; i++)
        n_windowed += hyperparameters_layer_windowed(h, i);
    if (h->summaries.is_there)
        inspect_text_line("sliding window", "%u tokens, and summaries in %u of the %u layers",
                          h->window_seen, h->n_layers - n_windowed, h->n_layers);
    else if (n_windowed)
        inspect_text_line("sliding window", "%u tokens, in %u of the %u layers", h->window_seen,
                          n_windowed, h->n_layers);
    else
        inspect_text_line("sliding window", "none");
}

static void print_experts(const struct hyperparameters *h)
{
    char where[64] = "each layer";
    uint32_t n_mixtures = 0;
    for (uint32_t i = 0; i < h->n_layers; i++)
        n_mixtures += h->layers[i].is_mixture;
    if (n_mixtures < h->n_layers)
        snprintf(where, sizeof where, "%u of the %u layers", n_mixtures, h->n_layers);
    inspect_text_line("experts", "%u in %s, %u used for a token", h->n_experts, where,
                      h->n_experts_used);
}

static void print_states(const struct model *model)
{
    const uint32_t n_layers = model_hyperparameters(model)->n_layers;
    uint32_t n = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_layers; i++) {
        const uint64_t more = model_layer_cost(model, i).state_bytes;
        n += more > 0;
        bytes += more;
    }
    inspect_text_line("recurrent", "%u of %u layers; a state of %s a sequence", n, n_layers,
                      size_text(bytes).text);
}

static void print_shape(const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    inspect_text_line("context", "%u tokens", h->n_context_train);
    inspect_text_line("layers", "%u", h->n_layers);
    inspect_text_line("width", "%u, feed-forward %u", h->n_embd,
                      h->n_experts ? h->n_ff_expert : h->n_ff);
    if (h->n_experts)
        print_experts(h);
    if (h->n_layers_file > h->n_layers)
        inspect_text_line("not run", "%u layers at the end, which predict further tokens",
                          h->n_layers_file - h->n_layers);
    if (h->n_latent_kv)
        inspect_text_line("latent attention", "%u values a token%s", h->n_latent_kv + h->n_rot,
                          h->is_latent_absorbed ? "" : ", cached as keys and values of each head");
    if (h->n_head_dim_k == h->n_head_dim_v)
        inspect_text_line("heads", "%u of %u, %u for KV", h->n_head, h->n_head_dim_k, h->n_head_kv);
    else
        inspect_text_line("heads", "%u of %u (K) and %u (V), %u for KV", h->n_head, h->n_head_dim_k,
                          h->n_head_dim_v, h->n_head_kv);
    if (hyperparameters_has_states(h))
        print_states(model);
    print_window(h);
    print_rope(model);
}

/* ---- what it costs ---- */

static void cost_row(const char *what, const struct layer_cost *cost, const char *attention)
{
    uint64_t kv_bytes = cost->kv_elements_per_token * INSPECT_F16_BYTES;
    printf("  %-12s%12s%12s%13s%14s%12s%s%s\n", what, size_text(cost->bytes).text,
           size_text(cost->bytes_per_token).text, count_text(cost->flops_per_token).text,
           count_text(cost->flops_per_token_per_context).text, size_text(kv_bytes).text,
           attention[0] ? "  " : "", attention);
}

static void print_cost(const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    bool tied = model_head(model) == model_tensor(model, TENSOR_TOKEN_EMBEDDING, 0);
    printf("\n  %-12s%12s%12s%13s%14s%12s  %s\n", "LAYER", "SIZE", "READ/TOKEN", "FLOP/TOKEN",
           "FLOP/CONTEXT", "KV/TOKEN", "ATTENTION");
    struct layer_cost cost = model_input_cost(model);
    cost_row("input", &cost, "");
    for (uint32_t i = 0; i < h->n_layers;) {
        struct inspect_layers run = inspect_layers_from(model, i);
        char name[32], attention[64] = "full";
        const uint32_t summary = h->layers[run.first].summary;
        if (run.first == run.last)
            snprintf(name, sizeof name, "%u", run.first);
        else
            snprintf(name, sizeof name, "%u-%u, each", run.first, run.last);
        if (run.windowed)
            snprintf(attention, sizeof attention, "last %u tokens", h->window_seen);
        else if (summary)
            snprintf(attention, sizeof attention, "last %u tokens, summaries of %u", h->window_seen,
                     summary);
        cost_row(name, &run.cost, attention);
        i = run.last + 1;
    }
    cost = model_output_cost(model);
    cost_row("output", &cost, tied ? "(shares the input's weights)" : "");
    cost = inspect_total_cost(model);
    cost_row("all", &cost, "");
}

/* ---- tokenizer and template ---- */

static void print_token(const char *name, const struct tokenizer *tokenizer, int32_t id)
{
    if (id == TOKEN_NONE) {
        inspect_text_line(name, "none");
        return;
    }
    struct buffer piece = {0};
    tokenizer_piece(tokenizer, id, true, &piece);
    printf("  %-18s%d, \"", name, id);
    print_clean(piece.data, piece.size, 60);
    printf("\"\n");
    buffer_deinit(&piece);
}

static void print_tokenizer(const struct inspection *inspection)
{
    const struct tokenizer *tokenizer = inspection->tokenizer;
    if (!tokenizer) {
        fputs("  tokenizer         cannot be used: ", stdout);
        print_clean(inspection->tokenizer_error.text, strlen(inspection->tokenizer_error.text),
                    1024);
        putchar('\n');
        return;
    }
    const char *pre = tokenizer_pre(tokenizer);
    printf("  %-18s%s", "tokenizer", tokenizer_family(tokenizer));
    if (pre[0]) {
        fputs(", pre-tokenizer ", stdout);
        print_clean(pre, strlen(pre), 60);
    }
    printf(", %u tokens\n", tokenizer_size(tokenizer));
    print_token("  begins with", tokenizer, tokenizer_bos(tokenizer));
    print_token("  ends with", tokenizer, tokenizer_eos(tokenizer));
    print_token("  ends turns with", tokenizer, tokenizer_eot(tokenizer));
    inspect_text_line("  adds by itself", "%s",
                      tokenizer_adds_bos(tokenizer)
                          ? tokenizer_adds_eos(tokenizer) ? "begin and end" : "begin"
                      : tokenizer_adds_eos(tokenizer) ? "end"
                                                      : "nothing");
}

static void print_template(const struct gguf_file *file)
{
    const char *text;
    size_t size;
    if (gguf_file_text(file, "tokenizer.chat_template", &text, &size, NULL)) {
        inspect_text_line("chat template", "none");
        return;
    }
    inspect_text_line("chat template", "%zu bytes", size);
    for (int i = 0; i < TEMPLATE_LINES && size > 0; i++) {
        const char *end = memchr(text, '\n', size);
        size_t length = end ? (size_t)(end - text) : size, used = end ? length + 1 : length;
        fputs("    | ", stdout);
        print_clean(text, length, TEMPLATE_LINE_BYTES);
        putchar('\n');
        text += used;
        size -= used;
    }
    if (size > 0)
        printf("    | ...\n");
}

/* ---- lists ---- */

static void print_tensors(const struct gguf_file *file)
{
    printf("\n  %-44s %-8s %-24s %12s %16s\n", "TENSOR", "TYPE", "SHAPE", "SIZE", "AT BYTE");
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(file, i);
        struct buffer name = {0}, shape = {0};
        inspect_clean_text(&name, tensor->name, strlen(tensor->name), true);
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            buffer_printf(&shape, "%s%" PRId64, d ? " x " : "", tensor->ne[d]);
        printf("  %-44s %-8s %-24s %12s %16" PRIu64 "\n", name.data ? name.data : "",
               gguf_tensor_type_name(tensor), shape.data ? shape.data : "1",
               size_text(tensor->size).text, tensor->offset);
        buffer_deinit(&name);
        buffer_deinit(&shape);
    }
}

static void print_keys(const struct gguf_file *file)
{
    printf("\n  %-44s VALUE\n", "KEY");
    for (uint64_t i = 0; i < gguf_file_key_count(file); i++) {
        char value[100];
        const char *key = gguf_file_key(file, i, value, sizeof value);
        struct buffer clean = {0};
        inspect_clean_text(&clean, key, strlen(key), true);
        printf("  %-44s %s\n", clean.data ? clean.data : "", value);
        buffer_deinit(&clean);
    }
}

void inspect_print(const struct inspection *inspection)
{
    const struct model *model = inspection->model;
    const char *name = model ? model_name(model) : inspect_file_name(inspection->file);
    print_clean(name, strlen(name), 200);
    putchar('\n');
    inspect_text_print_file(inspection->file);
    if (model) {
        inspect_text_line("architecture", "%s: %s", model_architecture(model)->name,
                          model_architecture(model)->description);
        inspect_text_line("parameters", "%s (%" PRIu64 "), mostly %s",
                          count_text(model_parameter_count(model)).text,
                          model_parameter_count(model), model_type_name(model));
    } else {
        const char *reason = inspect_reason(inspection->file, &inspection->model_error);
        fputs("  model             cannot be run: ", stdout);
        print_clean(reason, strlen(reason), 1024);
        putchar('\n');
    }
    print_weights(inspection);
    if (model)
        print_shape(model);
    print_tokenizer(inspection);
    print_template(inspection->file);
    if (model)
        print_cost(model);
    if (inspection->show_keys)
        print_keys(inspection->file);
    if (inspection->show_tensors)
        print_tensors(inspection->file);
}
