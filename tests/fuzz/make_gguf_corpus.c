/* Writes the corpus of the gguf target: good-*.gguf must open, evil-*.gguf must be refused. */
#include "gguf_bytes.h"

#include <stdio.h>
#include <string.h>

static const int64_t matrix[] = {32, 2}, vector[] = {7}, deep[] = {4, 3, 2, 2};

static void good_values(struct gguf_bytes *b)
{
    gguf_bytes_text(b, "general.architecture", "llama");
    gguf_bytes_u32(b, "general.alignment", 64);
    gguf_bytes_u8(b, "u8", 1);
    gguf_bytes_i8(b, "i8", -1);
    gguf_bytes_u16(b, "u16", 2);
    gguf_bytes_i16(b, "i16", -2);
    gguf_bytes_u32(b, "u32", 3);
    gguf_bytes_i32(b, "i32", -3);
    gguf_bytes_u64(b, "u64", 1ULL << 40);
    gguf_bytes_i64(b, "i64", -4);
    gguf_bytes_f32(b, "f32", 1e-5f);
    gguf_bytes_f64(b, "f64", 0.5);
    gguf_bytes_bool(b, "bool", true);
    gguf_bytes_text_sized(b, "text with NUL", "a\0b", 3);
    gguf_bytes_array(b, "u8s", GGUF_TYPE_UINT8, "\1\2\3", 3, 1);
    gguf_bytes_array(b, "i32s", GGUF_TYPE_INT32, (int32_t[]){1, -2, 3}, 3, 4);
    gguf_bytes_array(b, "u64s", GGUF_TYPE_UINT64, (uint64_t[]){1, 2}, 2, 8);
    gguf_bytes_array(b, "f32s", GGUF_TYPE_FLOAT32, (float[]){0.5f, -1.5f}, 2, 4);
    gguf_bytes_array(b, "bools", GGUF_TYPE_BOOL, "\0\1", 2, 1);
    gguf_bytes_texts(b, "texts", (const char *[]){"one", "", "two"}, 3);
    gguf_bytes_array(b, "none", GGUF_TYPE_UINT32, "", 0, 4);
    b->alignment = 64;
    gguf_bytes_tensor(b, "f32", GGML_TYPE_F32, 4, deep, NULL);
    gguf_bytes_tensor(b, "f16", GGML_TYPE_F16, 1, vector, NULL);
    gguf_bytes_tensor(b, "q8_0", GGML_TYPE_Q8_0, 2, matrix, NULL);
    gguf_bytes_tensor(b, "q4_k", GGML_TYPE_Q4_K, 1, (int64_t[]){256}, NULL);
}

static void good_vocabulary(struct gguf_bytes *b)
{
    const char *tokens[64] = {"<unk>", "<s>", "</s>"};
    char texts[64][8];
    float scores[64];
    int32_t types[64];
    for (int i = 0; i < 64; i++) {
        if (!tokens[i]) {
            snprintf(texts[i], sizeof texts[i], "t%d", i);
            tokens[i] = texts[i];
        }
        scores[i] = (float)-i;
        types[i] = i < 3 ? 3 : 1;
    }
    gguf_bytes_text(b, "general.architecture", "llama");
    gguf_bytes_text(b, "tokenizer.ggml.model", "llama");
    gguf_bytes_texts(b, "tokenizer.ggml.tokens", tokens, 64);
    gguf_bytes_array(b, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, 64, 4);
    gguf_bytes_array(b, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, 64, 4);
    gguf_bytes_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_bytes_text(b, "tokenizer.chat_template",
                    "{% for m in messages %}{{ m['content'] }}{% endfor %}");
}

static void good_version_2(struct gguf_bytes *b)
{
    b->version = 2;
    gguf_bytes_text(b, "general.architecture", "llama");
    gguf_bytes_tensor(b, "t", GGML_TYPE_F32, 2, matrix, NULL);
}

/* Data out of order and with a gap: right by the format, refused by ggml's reader. */
static void good_order(struct gguf_bytes *b)
{
    gguf_bytes_raw_tensor(b, "later", 5, 1, vector, GGML_TYPE_F32, 128);
    gguf_bytes_raw_tensor(b, "sooner", 6, 1, vector, GGML_TYPE_F32, 0);
    for (int i = 0; i < 128 + 28; i++)
        buffer_append(&b->data, "d", 1);
}

/* As many texts as a list of models passes over. */
static void good_many_texts(struct gguf_bytes *b)
{
    static const char *texts[4500];
    for (uint32_t i = 0; i < 4500; i++)
        texts[i] = i % 3 ? "a" : "token";
    gguf_bytes_texts(b, "tokenizer.ggml.tokens", texts, 4500);
    gguf_bytes_u32(b, "tokenizer.ggml.bos_token_id", 0);
    gguf_bytes_tensor(b, "matrix", GGML_TYPE_F32, 2, matrix, NULL);
    gguf_bytes_tensor(b, "vector", GGML_TYPE_F32, 1, vector, NULL);
}

static void good_nothing(struct gguf_bytes *b)
{
    (void)b;
}

static void evil_counts(struct gguf_bytes *b)
{
    b->n_keys = b->n_tensors = 65536;
}

static void evil_text_size(struct gguf_bytes *b)
{
    gguf_bytes_raw_key(b, "text", 4, GGUF_TYPE_STRING, "\xf8\xff\xff\xff\xff\xff\xff\xff", 8);
}

static void evil_array_size(struct gguf_bytes *b)
{
    gguf_bytes_array(b, "array", GGUF_TYPE_FLOAT64, "", 0, 8);
    memcpy(b->keys.data + b->keys.size - 8, "\1\0\0\0\0\0\0\x20", 8); /* times 8 is 8 */
}

static void evil_nested_array(struct gguf_bytes *b)
{
    gguf_bytes_array(b, "array", GGUF_TYPE_ARRAY, "\4\0\0\0\1\0\0\0\0\0\0\0\7\0\0\0", 1, 16);
}

static void evil_same_keys(struct gguf_bytes *b)
{
    gguf_bytes_u32(b, "key", 1);
    gguf_bytes_u32(b, "key", 2);
}

static void evil_empty_key(struct gguf_bytes *b)
{
    gguf_bytes_raw_key(b, "", 0, GGUF_TYPE_UINT32, "\1\0\0\0", 4);
    gguf_bytes_u32(b, "key", 2);
}

static void evil_alignment(struct gguf_bytes *b)
{
    gguf_bytes_text(b, "general.alignment", "32"); /* a type that ggml's reader would abort on */
    gguf_bytes_tensor(b, "t", GGML_TYPE_F32, 2, matrix, NULL);
}

static void evil_alignment_zero(struct gguf_bytes *b)
{
    gguf_bytes_u32(b, "general.alignment", 0);
    gguf_bytes_tensor(b, "t", GGML_TYPE_F32, 2, matrix, NULL);
}

static void evil_shape(struct gguf_bytes *b)
{
    gguf_bytes_raw_tensor(b, "t", 1, 4, (int64_t[]){1LL << 32, 1LL << 31, 2, 1}, GGML_TYPE_F32, 0);
}

static void evil_type(struct gguf_bytes *b)
{
    gguf_bytes_raw_tensor(b, "t", 1, 2, matrix, 36, 0);
}

static void evil_offset(struct gguf_bytes *b)
{
    gguf_bytes_raw_tensor(b, "t", 1, 2, matrix, GGML_TYPE_F32, UINT64_MAX - 255);
}

static void evil_overlap(struct gguf_bytes *b)
{
    gguf_bytes_tensor(b, "a", GGML_TYPE_F32, 2, matrix, NULL);
    gguf_bytes_raw_tensor(b, "b", 1, 2, matrix, GGML_TYPE_F32, 0);
}

static void evil_truncated(struct gguf_bytes *b)
{
    gguf_bytes_raw_tensor(b, "t", 1, 2, matrix, GGML_TYPE_F32, 0);
}

static void evil_split(struct gguf_bytes *b)
{
    gguf_bytes_u16(b, "split.no", 0);
    gguf_bytes_u16(b, "split.count", 2);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*build)(struct gguf_bytes *);
    } files[] = {
        {"good-values", good_values},         {"good-vocabulary", good_vocabulary},
        {"good-version-2", good_version_2},   {"good-order", good_order},
        {"good-many-texts", good_many_texts}, {"good-nothing", good_nothing},
        {"evil-counts", evil_counts},         {"evil-text-size", evil_text_size},
        {"evil-array-size", evil_array_size}, {"evil-nested-array", evil_nested_array},
        {"evil-same-keys", evil_same_keys},   {"evil-empty-key", evil_empty_key},
        {"evil-alignment", evil_alignment},   {"evil-alignment-zero", evil_alignment_zero},
        {"evil-shape", evil_shape},           {"evil-type", evil_type},
        {"evil-offset", evil_offset},         {"evil-overlap", evil_overlap},
        {"evil-truncated", evil_truncated},   {"evil-split", evil_split},
    };
    if (argc != 2) {
        fprintf(stderr, "usage: make-gguf-corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct gguf_bytes bytes = {0};
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.gguf", argv[1], files[i].name);
        files[i].build(&bytes);
        gguf_bytes_save(&bytes, path);
        gguf_bytes_deinit(&bytes);
    }
    return 0;
}
