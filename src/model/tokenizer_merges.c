/* BPE's merges: "left right" in order of rank. libllama takes them as texts and ignores those that
 * do not parse; a text that is no token still merges, so it gets a number beyond the tokens. */
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "model/tokenizer_private.h"

#include <string.h>

static const char key_merges[] = "tokenizer.ggml.merges";

struct merges_loading {
    struct tokenizer *tokenizer;
    struct buffer joined;
    uint32_t guess; /* the number after that of the last result: tokens mostly stand in the order of
                       their merges */
    uint32_t malformed;
    enum error_code code;
    struct error *err;
};

static void tokenizer_merges_insert(struct merge_table *table, uint64_t pair, uint32_t rank,
                                    uint32_t result)
{
    uint32_t slot = (uint32_t)random_mix(pair) & (table->n_slots - 1);
    for (; table->slots[slot].pair != MERGE_FREE; slot = (slot + 1) & (table->n_slots - 1)) {
        if (table->slots[slot].pair == pair)
            return; /* the first one counts */
    }
    table->slots[slot] = (struct merge){.pair = pair, .rank = rank, .result = result};
    table->count++;
}

static bool tokenizer_merges_is_text(const struct text_table *texts, uint32_t number,
                                     const struct buffer *text)
{
    if (number >= texts->count)
        return false;
    size_t size;
    const char *held = text_table_at(texts, number, &size);
    return size == text->size && memcmp(held, text->data, size) == 0;
}

static void take_merge(void *arg, uint64_t index, const char *text, size_t size)
{
    struct merges_loading *loading = arg;
    if (loading->code)
        return;
    const char *space = size > 1 ? memchr(text + 1, ' ', size - 1) : NULL;
    if (!space || space + 1 == text + size) {
        loading->malformed++;
        return;
    }
    size_t left_size = (size_t)(space - text), right_size = size - left_size - 1;
    if (left_size + right_size > LIMIT_TOKEN_BYTES) {
        loading->code =
            error_set(loading->err, ERROR_INVALID, "merge %llu makes %zu bytes; the limit is %d",
                      (unsigned long long)index, left_size + right_size, LIMIT_TOKEN_BYTES);
        return;
    }
    struct text_table *texts = &loading->tokenizer->texts;
    uint32_t left = 0, right = 0, result = 0;
    buffer_clear(&loading->joined);
    buffer_append(&loading->joined, text, left_size);
    buffer_append(&loading->joined, space + 1, right_size);
    loading->code = loading->joined.failed ? tokenizer_no_memory(loading->err) : ERROR_NONE;
    if (!loading->code)
        loading->code = text_table_add(texts, text, left_size, &left, loading->err);
    if (!loading->code)
        loading->code = text_table_add(texts, space + 1, right_size, &right, loading->err);
    if (!loading->code && tokenizer_merges_is_text(texts, loading->guess, &loading->joined))
        result = loading->guess;
    else if (!loading->code)
        loading->code = text_table_add(texts, loading->joined.data, loading->joined.size, &result,
                                       loading->err);
    loading->guess = result + 1;
    if (!loading->code)
        tokenizer_merges_insert(&loading->tokenizer->merges, (uint64_t)left << 32 | right,
                                (uint32_t)index, result);
}

enum error_code merges_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                            struct error *err)
{
    if ((tokenizer->rule->flags & PRE_NO_MERGES) && !gguf_file_has(file, key_merges))
        return ERROR_NONE;
    uint64_t count;
    enum error_code code = gguf_file_array(file, key_merges, GGUF_ARRAY_TEXT, &count, err);
    if (code)
        return code;
    if (count > LIMIT_VOCAB)
        return error_set(err, ERROR_INVALID, "%s has %llu merges; the limit is %d", key_merges,
                         (unsigned long long)count, LIMIT_VOCAB);
    uint32_t n_slots = 64;
    while (n_slots < count * 2)
        n_slots *= 2;
    tokenizer->merges.slots = mem_new_array(n_slots, sizeof *tokenizer->merges.slots);
    if (!tokenizer->merges.slots)
        return tokenizer_no_memory(err);
    tokenizer->merges.n_slots = n_slots;
    for (uint32_t i = 0; i < n_slots; i++)
        tokenizer->merges.slots[i].pair = MERGE_FREE;
    struct merges_loading loading = {.tokenizer = tokenizer, .err = err};
    gguf_file_array_texts(file, key_merges, take_merge, &loading);
    buffer_deinit(&loading.joined);
    if (loading.malformed)
        log_line(LOG_WARN, "tokenizer",
                 "%u of %llu merges are not two texts with a space between; they are ignored",
                 loading.malformed, (unsigned long long)count);
    return loading.code;
}
