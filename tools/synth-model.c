/* synth-model: writes a GGUF with random weights, for benchmarks and tests: of the llama
 * architecture, or with --latent a mixture of experts with latent attention (deepseek2).
 *
 *   synth-model --type q4_0 [--layers 16 --embd 2048 --ff 8192 --heads 32 --kv-heads 8
 *               --vocab 32000 --context 4096 --seed 1] [--hollow] OUT.gguf
 *   synth-model --type q4_0 --latent [--experts 16 --experts-used 4 --expert-ff 768
 *               and the others] OUT.gguf
 *
 * --latent has heads of 128 + 64 rotated values over latents of 512 (queries: half of --embd), one
 * shared expert a layer, and a first layer that is dense.
 *
 * With --hollow the weights are a hole in the file: it is as long as the model and takes no disk,
 * for what reads headers alone (`medley plan`, `medley inspect`).
 *
 * Every matrix has the one type (as `llama-quantize --pure` leaves it), norms are F32 ones, weights
 * are N(0, 1/fan_in). Speed does not depend on the weights' values, so a matrix is put together
 * from chunks of 256 weights that are drawn by chance out of a pool of 4,096 quantised ones:
 * seconds instead of minutes, and still no two rows of a matrix alike. The same flags give the same
 * file, byte for byte. */
#include "synth-vocab.h"

#include "base/random.h"

#include <ggml.h>
#include <gguf.h>

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256, POOL_CHUNKS = 4096, MAX_POOLS = 12 };
/* DeepSeek V3's heads and latents (arXiv:2412.19437, 4.2) */
enum { LATENT_KV = 512, LATENT_PLAIN = 128, LATENT_ROTATED = 64, LATENT_V = 128 };

struct shape {
    enum ggml_type type;
    uint32_t layers, embd, ff, heads, kv_heads, vocab, context;
    uint64_t seed;
    bool hollow;
    bool latent;
    uint32_t experts, experts_used, expert_ff;
};

struct pool { /* POOL_CHUNKS chunks of weights with one variance, quantised */
    int64_t fan_in;
    enum ggml_type type;
    char *data;
};

struct writer {
    struct shape shape;
    struct gguf_context *gguf;
    struct ggml_context *tensors;
    struct pool pools[MAX_POOLS];
    FILE *file;
};

static void die(const char *text)
{
    fprintf(stderr, "synth-model: %s\n", text);
    exit(1);
}

/* ---- what is in the file --------------------------------------------------------------------- */

static void set_u32(struct gguf_context *gguf, const char *key, uint32_t value)
{
    gguf_set_val_u32(gguf, key, value);
}

static void describe_latent(struct gguf_context *gguf, const struct shape *s)
{
    const struct {
        const char *key;
        uint32_t value;
    } keys[] = {
        {"block_count", s->layers},
        {"context_length", s->context},
        {"embedding_length", s->embd},
        {"feed_forward_length", s->ff},
        {"attention.head_count", s->heads},
        {"attention.head_count_kv", 1},
        {"attention.q_lora_rank", s->embd / 2},
        {"attention.kv_lora_rank", LATENT_KV},
        {"attention.key_length", LATENT_KV + LATENT_ROTATED},
        {"attention.value_length", LATENT_KV},
        {"attention.key_length_mla", LATENT_PLAIN + LATENT_ROTATED},
        {"attention.value_length_mla", LATENT_V},
        {"rope.dimension_count", LATENT_ROTATED},
        {"vocab_size", s->vocab},
        {"leading_dense_block_count", 1},
        {"expert_count", s->experts},
        {"expert_used_count", s->experts_used},
        {"expert_shared_count", 1},
        {"expert_feed_forward_length", s->expert_ff},
        {"expert_gating_func", 2}, /* sigmoid */
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "deepseek2.%s", keys[i].key);
        set_u32(gguf, key, keys[i].value);
    }
    gguf_set_val_f32(gguf, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_set_val_f32(gguf, "deepseek2.rope.freq_base", 10000.0f);
    gguf_set_val_f32(gguf, "deepseek2.expert_weights_scale", 2.5f);
    gguf_set_val_bool(gguf, "deepseek2.expert_weights_norm", true);
}

static void describe_model(struct gguf_context *gguf, const struct shape *shape)
{
    char name[64];
    snprintf(name, sizeof name, "synthetic %" PRIu32 "x%" PRIu32 " %s", shape->layers, shape->embd,
             ggml_type_name(shape->type));
    gguf_set_val_str(gguf, "general.architecture", shape->latent ? "deepseek2" : "llama");
    gguf_set_val_str(gguf, "general.name", name);
    if (shape->latent) {
        describe_latent(gguf, shape);
        return;
    }
    set_u32(gguf, "llama.block_count", shape->layers);
    set_u32(gguf, "llama.context_length", shape->context);
    set_u32(gguf, "llama.embedding_length", shape->embd);
    set_u32(gguf, "llama.feed_forward_length", shape->ff);
    set_u32(gguf, "llama.attention.head_count", shape->heads);
    set_u32(gguf, "llama.attention.head_count_kv", shape->kv_heads);
    gguf_set_val_f32(gguf, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    set_u32(gguf, "llama.rope.dimension_count", shape->embd / shape->heads);
    gguf_set_val_f32(gguf, "llama.rope.freq_base", 10000.0f);
    set_u32(gguf, "llama.vocab_size", shape->vocab);
}

static void add_tensor(struct writer *w, enum ggml_type type, const char *name, int64_t columns,
                       int64_t rows)
{
    struct ggml_tensor *tensor = rows ? ggml_new_tensor_2d(w->tensors, type, columns, rows)
                                      : ggml_new_tensor_1d(w->tensors, type, columns);
    ggml_set_name(tensor, name);
    gguf_add_tensor(w->gguf, tensor);
}

static void add_deep_tensor(struct writer *w, enum ggml_type type, const char *name,
                            int64_t columns, int64_t rows, int64_t deep)
{
    struct ggml_tensor *tensor = ggml_new_tensor_3d(w->tensors, type, columns, rows, deep);
    ggml_set_name(tensor, name);
    gguf_add_tensor(w->gguf, tensor);
}

static void add_layer(struct writer *w, uint32_t layer)
{
    const struct shape *s = &w->shape;
    const int64_t embd = s->embd, kv = embd / s->heads * s->kv_heads, ff = s->ff;
    const struct {
        const char *name;
        int64_t columns, rows; /* no rows: a norm */
    } parts[] = {
        {"attn_norm", embd, 0}, {"attn_q", embd, embd},      {"attn_k", embd, kv},
        {"attn_v", embd, kv},   {"attn_output", embd, embd}, {"ffn_norm", embd, 0},
        {"ffn_gate", embd, ff}, {"ffn_up", embd, ff},        {"ffn_down", ff, embd},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[GGML_MAX_NAME];
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", layer, parts[i].name);
        add_tensor(w, parts[i].rows ? s->type : GGML_TYPE_F32, name, parts[i].columns,
                   parts[i].rows);
    }
}

/* Rows of 128 values are not whole blocks of every type. */
static enum ggml_type type_of_rows(const struct writer *w, int64_t columns)
{
    return columns % ggml_blck_size(w->shape.type) ? GGML_TYPE_Q8_0 : w->shape.type;
}

static void add_latent_layer(struct writer *w, uint32_t layer)
{
    const struct shape *s = &w->shape;
    const int64_t embd = s->embd, q = embd / 2, heads = s->heads, ff = layer ? s->expert_ff : s->ff,
                  experts = layer ? s->experts : 1, plain = LATENT_PLAIN;
    const struct {
        const char *name;
        int64_t columns, rows, deep;
        bool of_dense, of_mixture, is_f32;
    } parts[] = {
        {"attn_norm.weight", embd, 0, 0, 1, 1, 1},
        {"attn_q_a.weight", embd, q, 0, 1, 1, 0},
        {"attn_q_a_norm.weight", q, 0, 0, 1, 1, 1},
        {"attn_q_b.weight", q, heads * (plain + LATENT_ROTATED), 0, 1, 1, 0},
        {"attn_kv_a_mqa.weight", embd, LATENT_KV + LATENT_ROTATED, 0, 1, 1, 0},
        {"attn_kv_a_norm.weight", LATENT_KV, 0, 0, 1, 1, 1},
        {"attn_k_b.weight", plain, LATENT_KV, heads, 1, 1, 0},
        {"attn_v_b.weight", LATENT_KV, LATENT_V, heads, 1, 1, 0},
        {"attn_output.weight", heads * LATENT_V, embd, 0, 1, 1, 0},
        {"ffn_norm.weight", embd, 0, 0, 1, 1, 1},
        {"ffn_gate.weight", embd, ff, 0, 1, 0, 0},
        {"ffn_up.weight", embd, ff, 0, 1, 0, 0},
        {"ffn_down.weight", ff, embd, 0, 1, 0, 0},
        {"ffn_gate_inp.weight", embd, experts, 0, 0, 1, 1},
        {"exp_probs_b.bias", experts, 0, 0, 0, 1, 1},
        {"ffn_gate_exps.weight", embd, ff, experts, 0, 1, 0},
        {"ffn_up_exps.weight", embd, ff, experts, 0, 1, 0},
        {"ffn_down_exps.weight", ff, embd, experts, 0, 1, 0},
        {"ffn_gate_shexp.weight", embd, ff, 0, 0, 1, 0},
        {"ffn_up_shexp.weight", embd, ff, 0, 0, 1, 0},
        {"ffn_down_shexp.weight", ff, embd, 0, 0, 1, 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[GGML_MAX_NAME];
        if (!(layer ? parts[i].of_mixture : parts[i].of_dense))
            continue;
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, parts[i].name);
        const enum ggml_type type =
            parts[i].is_f32 ? GGML_TYPE_F32 : type_of_rows(w, parts[i].columns);
        if (parts[i].deep)
            add_deep_tensor(w, type, name, parts[i].columns, parts[i].rows, parts[i].deep);
        else
            add_tensor(w, type, name, parts[i].columns, parts[i].rows);
    }
}

static void add_tensors(struct writer *w)
{
    const struct shape *s = &w->shape;
    const size_t count = 3 + 24 * (size_t)s->layers;
    w->tensors = ggml_init(
        (struct ggml_init_params){.mem_size = count * ggml_tensor_overhead(), .no_alloc = true});
    if (!w->tensors)
        die("out of memory");
    add_tensor(w, s->type, "token_embd.weight", s->embd, s->vocab);
    for (uint32_t layer = 0; layer < s->layers; layer++) {
        if (s->latent)
            add_latent_layer(w, layer);
        else
            add_layer(w, layer);
    }
    add_tensor(w, GGML_TYPE_F32, "output_norm.weight", s->embd, 0);
    add_tensor(w, s->type, "output.weight", s->embd, s->vocab);
}

/* ---- weights --------------------------------------------------------------------------------- */

static float normal_at(uint64_t seed, uint64_t counter) /* Box-Muller */
{
    const double u = 1.0 - random_unit_at(seed, 2 * counter),
                 v = random_unit_at(seed, 2 * counter + 1);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

static char *make_pool(const struct writer *w, enum ggml_type type, int64_t fan_in)
{
    const size_t n = (size_t)CHUNK * POOL_CHUNKS;
    float *weights = malloc(n * sizeof *weights);
    char *data = malloc(ggml_row_size(type, CHUNK) * POOL_CHUNKS);
    if (!weights || !data)
        die("out of memory");
    const float deviation = 1.0f / sqrtf((float)fan_in);
    for (size_t i = 0; i < n; i++)
        weights[i] = deviation * normal_at(w->shape.seed ^ (uint64_t)fan_in, i);
    ggml_quantize_chunk(type, weights, data, 0, POOL_CHUNKS, CHUNK, NULL);
    free(weights);
    return data;
}

static const char *pool_for(struct writer *w, enum ggml_type type, int64_t fan_in)
{
    for (size_t i = 0; i < MAX_POOLS; i++) {
        if (!w->pools[i].data)
            w->pools[i] = (struct pool){fan_in, type, make_pool(w, type, fan_in)};
        if (w->pools[i].fan_in == fan_in && w->pools[i].type == type)
            return w->pools[i].data;
    }
    die("more widths than pools");
    return NULL;
}

static void write_bytes(struct writer *w, const void *bytes, size_t size)
{
    if (fwrite(bytes, 1, size, w->file) != size)
        die("could not write the file: is the disk full?");
}

static void write_matrix(struct writer *w, const struct ggml_tensor *tensor, uint64_t seed)
{
    const char *pool = pool_for(w, tensor->type, tensor->ne[0]);
    const size_t size = ggml_row_size(tensor->type, CHUNK);
    const uint64_t chunks = (uint64_t)ggml_nelements(tensor) / CHUNK;
    for (uint64_t i = 0; i < chunks; i++)
        write_bytes(w, pool + random_at(seed, i) % POOL_CHUNKS * size, size);
}

static void write_norm(struct writer *w, int64_t columns)
{
    const float one = 1.0f;
    for (int64_t i = 0; i < columns; i++)
        write_bytes(w, &one, sizeof one);
}

static void write_weights(struct writer *w)
{
    const size_t alignment = gguf_get_alignment(w->gguf);
    static const char zeros[64];
    const int64_t count = gguf_get_n_tensors(w->gguf);
    for (int64_t i = 0; i < count; i++) {
        const struct ggml_tensor *tensor =
            ggml_get_tensor(w->tensors, gguf_get_tensor_name(w->gguf, i));
        if (ggml_n_dims(tensor) == 1)
            write_norm(w, tensor->ne[0]);
        else
            write_matrix(w, tensor, random_at(w->shape.seed, (uint64_t)i));
        write_bytes(w, zeros, (alignment - ggml_nbytes(tensor) % alignment) % alignment);
    }
}

static void write_hole(struct writer *w)
{
    const size_t alignment = gguf_get_alignment(w->gguf);
    uint64_t size = (uint64_t)ftello(w->file);
    for (int64_t i = 0; i < gguf_get_n_tensors(w->gguf); i++) {
        const size_t bytes =
            ggml_nbytes(ggml_get_tensor(w->tensors, gguf_get_tensor_name(w->gguf, i)));
        size += bytes + (alignment - bytes % alignment) % alignment;
    }
    if (fflush(w->file) || ftruncate(fileno(w->file), (off_t)size))
        die("could not make a hole in the file");
}

/* ---- the command line ------------------------------------------------------------------------ */

static enum ggml_type type_named(const char *name)
{
    static const enum ggml_type types[] = {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16,
                                           GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
                                           GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcasecmp(name, ggml_type_name(types[i])) == 0)
            return types[i];
    }
    die("unknown --type: f32, f16, bf16, q4_0, q8_0, q4_k, q5_k or q6_k");
    return GGML_TYPE_COUNT;
}

static uint32_t number(const char *text)
{
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > 1u << 24)
        die("a number between 0 and 16777216 is expected");
    return (uint32_t)value;
}

static void check(const struct shape *s)
{
    if (s->layers == 0 || s->heads == 0 || s->kv_heads == 0 || s->context == 0)
        die("--layers, --heads, --kv-heads and --context must be at least 1");
    if (s->embd == 0 || s->embd % CHUNK || s->ff == 0 || s->ff % CHUNK)
        die("--embd and --ff must be multiples of 256");
    if (s->embd % s->heads || s->embd / s->heads % 2 || s->heads % s->kv_heads)
        die("--heads must divide --embd into even parts, and --kv-heads must divide --heads");
    if (s->latent && (!s->expert_ff || s->expert_ff % CHUNK || !s->experts_used ||
                      s->experts_used > s->experts || s->embd % (2 * CHUNK)))
        die("--expert-ff must be a multiple of 256, --embd of 512, --experts-used 1 to --experts");
    if (s->vocab < SYNTH_VOCAB_MIN || s->vocab > SYNTH_VOCAB_MAX)
        die("--vocab is out of range");
}

static const char *parse(int argc, char **argv, struct shape *s)
{
    static const struct option options[] = {
        {"type", 1, NULL, 't'},         {"layers", 1, NULL, 'l'},    {"embd", 1, NULL, 'e'},
        {"ff", 1, NULL, 'f'},           {"heads", 1, NULL, 'h'},     {"kv-heads", 1, NULL, 'k'},
        {"vocab", 1, NULL, 'v'},        {"context", 1, NULL, 'c'},   {"seed", 1, NULL, 's'},
        {"hollow", 0, NULL, 'o'},       {"latent", 0, NULL, 'a'},    {"experts", 1, NULL, 'x'},
        {"experts-used", 1, NULL, 'u'}, {"expert-ff", 1, NULL, 'F'}, {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 't':
            s->type = type_named(optarg);
            break;
        case 'l':
            s->layers = number(optarg);
            break;
        case 'e':
            s->embd = number(optarg);
            break;
        case 'f':
            s->ff = number(optarg);
            break;
        case 'h':
            s->heads = number(optarg);
            break;
        case 'k':
            s->kv_heads = number(optarg);
            break;
        case 'v':
            s->vocab = number(optarg);
            break;
        case 'c':
            s->context = number(optarg);
            break;
        case 's':
            s->seed = number(optarg);
            break;
        case 'o':
            s->hollow = true;
            break;
        case 'a':
            s->latent = true;
            break;
        case 'x':
            s->experts = number(optarg);
            break;
        case 'u':
            s->experts_used = number(optarg);
            break;
        case 'F':
            s->expert_ff = number(optarg);
            break;
        default:
            exit(2);
        }
    }
    if (optind != argc - 1)
        die("usage: synth-model --type q4_0|q8_0|q4_k|f16|f32 [--layers N …] OUT.gguf");
    check(s);
    return argv[optind];
}

int main(int argc, char **argv)
{
    struct writer w = {
        .shape = {GGML_TYPE_Q4_0, 16, 2048, 8192, 32, 8, 32000, 4096, 1, false, false, 16, 4, 768}};
    const char *path = parse(argc, argv, &w.shape);
    w.gguf = gguf_init_empty();
    w.file = fopen(path, "wb");
    if (!w.gguf || !w.file)
        die("could not open the file for writing");
    describe_model(w.gguf, &w.shape);
    synth_vocab_add(w.gguf, w.shape.vocab);
    add_tensors(&w);
    if (!gguf_write_to_file_ptr(w.gguf, w.file, true))
        die("could not write the file");
    if (w.shape.hollow)
        write_hole(&w);
    else
        write_weights(&w);
    if (fclose(w.file) != 0)
        die("could not write the file: is the disk full?");
    for (size_t i = 0; i < MAX_POOLS; i++)
        free(w.pools[i].data);
    ggml_free(w.tensors);
    gguf_free(w.gguf);
    return 0;
}
