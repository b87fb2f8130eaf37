/* Invariants: those of gguf_check.c. The work is bounded by SKIM_JUMPS arrays, for each of which
 * are SKIM_ENDS places tried, and at most 64 pages looked at. */
#include "model/gguf_skim.h"

#include "base/mem.h"
#include "model/gguf_walk.h"

enum {
    SKIM_TEXTS = 4096,      /* a shorter array is read */
    SKIM_TEXT_BYTES = 1024, /* longer ones are none of a vocabulary */
    SKIM_PAGE = 4096,       /* bytes that one look takes */
    SKIM_CHAIN = 24,        /* texts one after the other: no accident */
    SKIM_STEP = 512 * 1024, /* of the first look ahead */
    SKIM_CLOSE = 8 * 4096,  /* from here on the texts are walked */
    SKIM_JUMPS = 4,         /* arrays: tokens, merges and two more */
    SKIM_ENDS = 3,          /* where a chain ends, or one or two texts before */
};

struct skim {
    struct gguf_cursor cursor;
    struct gguf_index *index; /* n_values: keys that were read */
    uint64_t n_values_max, n_tensors;
    uint32_t n_jumps;
};

/* The text at `at` as one of a vocabulary: the byte after it; 0: it is none. */
static uint64_t skim_text(const struct skim *skim, uint64_t at)
{
    const struct gguf_cursor *cursor = &skim->cursor;
    if (cursor->size < 8 || at > cursor->size - 8)
        return 0;
    const uint64_t length = gguf_load_u64(cursor->bytes + at);
    return !length || length > SKIM_TEXT_BYTES || length > cursor->size - at - 8 ? 0
                                                                                 : at + 8 + length;
}

/* Whether texts follow each other from `at` on, to the end of its page at least. */
static bool skim_is_chain(const struct skim *skim, uint64_t at, uint64_t end)
{
    uint32_t n = 0;
    while (at && at < end && n < SKIM_CHAIN) {
        at = skim_text(skim, at);
        n++;
    }
    return at && n == SKIM_CHAIN;
}

/* A text's beginning in the page at `page`; 0: there is no chain in it. */
static uint64_t skim_look(const struct skim *skim, uint64_t page)
{
    const uint64_t end = page + SKIM_PAGE;
    if (end > skim->cursor.size)
        return 0;
    for (uint64_t at = page; at < end - 8; at++) {
        if (skim_is_chain(skim, at, end))
            return at;
    }
    return 0;
}

/* From a text to one near the last of the chain that it is in. */
static uint64_t skim_go(const struct skim *skim, uint64_t text)
{
    uint64_t step = SKIM_STEP, beyond = 0;
    while (!beyond) {
        const uint64_t page = (text + step) / SKIM_PAGE * SKIM_PAGE;
        const uint64_t found = step < UINT64_MAX / 4 ? skim_look(skim, page) : 0;
        text = found ? found : text;
        beyond = found ? 0 : page;
        step *= 2;
    }
    while (beyond > text && beyond - text > SKIM_CLOSE) {
        const uint64_t page = (text + (beyond - text) / 2) / SKIM_PAGE * SKIM_PAGE;
        const uint64_t found = skim_look(skim, page);
        text = found ? found : text;
        beyond = found ? beyond : page;
    }
    return text;
}

static void skim_drop_values(struct skim *skim, uint64_t n)
{
    struct gguf_index *index = skim->index;
    while (index->n_values > n) {
        struct gguf_value *value = &index->values[--index->n_values];
        mem_free(value->key);
        mem_free(value->text);
        *value = (struct gguf_value){0};
    }
}

static void skim_drop_tensors(struct gguf_index *index)
{
    mem_free(index->tensors);
    mem_free(index->tensor_names);
    mem_free(index->tensors_by_name);
    index->tensors = NULL;
    index->tensor_names = NULL;
    index->tensors_by_name = NULL;
    index->n_tensors = 0;
}

/* Whether the descriptions begin here: all of them, or none is believed. */
static bool skim_tensors(struct skim *skim)
{
    struct gguf_cursor cursor = skim->cursor;
    struct gguf_index *index = skim->index;
    const char *name;
    uint64_t size, ne;
    uint32_t n_dims;
    if (!gguf_cursor_text(&cursor, &name, &size) || !size || size >= GGML_MAX_NAME ||
        !gguf_cursor_u32(&cursor, &n_dims) || !n_dims || n_dims > GGML_MAX_DIMS ||
        !gguf_cursor_u64(&cursor, &ne) || ne > UINT32_MAX || gguf_check_keys_end(index, NULL))
        return false;
    cursor.at = skim->cursor.at;
    index->n_tensors = skim->n_tensors;
    index->keys_end = cursor.at;
    if (!gguf_check_tensors(&cursor, index, NULL))
        return true;
    skim_drop_tensors(index);
    return false;
}

static bool skim_is_name(const char *key)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-";
    return strchr(key, '.') && !key[strspn(key, allowed)];
}

/* The cursor stands at a key's type: whether it is a vocabulary's, and where its texts begin. */
static bool skim_is_vocabulary(const struct skim *skim, uint64_t *texts)
{
    struct gguf_cursor cursor = skim->cursor;
    uint32_t type, of;
    uint64_t n;
    if (!gguf_cursor_u32(&cursor, &type) || type != GGUF_TYPE_ARRAY ||
        !gguf_cursor_u32(&cursor, &of) || of != GGUF_TYPE_STRING || !gguf_cursor_u64(&cursor, &n))
        return false;
    *texts = cursor.at;
    return n >= SKIM_TEXTS;
}

/* The next key; *texts is where those of a vocabulary begin, which was not kept, else 0. */
static bool skim_key(struct skim *skim, uint64_t *texts)
{
    struct gguf_index *index = skim->index;
    const uint64_t i = index->n_values;
    struct gguf_value *value = &index->values[i];
    *texts = 0;
    index->n_values++;
    if (gguf_check_read_key(&skim->cursor, i, value, NULL) || !skim_is_name(value->key)) {
        skim_drop_values(skim, i);
        return false;
    }
    if (skim_is_vocabulary(skim, texts)) {
        skim_drop_values(skim, i);
        return true;
    }
    if (!gguf_check_read_value(&skim->cursor, i, value, NULL))
        return true;
    skim_drop_values(skim, i);
    return false;
}

/* The last texts of a chain; what follows it begins with a text, too, and may look like more. */
static void skim_ends(const struct skim *skim, uint64_t text, uint64_t ends[SKIM_ENDS])
{
    for (uint32_t i = 0; i < SKIM_ENDS; i++)
        ends[i] = 0;
    for (uint64_t next; (next = skim_text(skim, text)); text = next) {
        memmove(ends + 1, ends, sizeof *ends * (SKIM_ENDS - 1));
        ends[0] = text;
    }
}

/* Keys and tensors from the cursor on, up to the next vocabulary. */
static bool skim_keys(struct skim *skim, uint64_t *texts)
{
    *texts = 0;
    while (!skim_tensors(skim)) {
        if (skim->index->n_values == skim->n_values_max || !skim_key(skim, texts))
            return false;
        if (*texts)
            return true;
    }
    return true;
}

/* From where a vocabulary's texts begin to the end of all: no deeper than SKIM_JUMPS. */
static bool skim_beyond(struct skim *skim, uint64_t texts)
{
    uint64_t ends[SKIM_ENDS];
    const uint64_t n_values = skim->index->n_values;
    if (skim->n_jumps == SKIM_JUMPS)
        return false;
    skim->n_jumps++;
    skim_ends(skim, skim_go(skim, texts), ends);
    for (uint32_t i = 0; i < SKIM_ENDS && ends[i] >= texts; i++) {
        skim->cursor.at = ends[i];
        if (skim_keys(skim, &texts) && (!texts || skim_beyond(skim, texts)))
            return true;
        skim_drop_values(skim, n_values);
    }
    skim->n_jumps--;
    return false;
}

bool gguf_skim(const uint8_t *bytes, uint64_t size, struct gguf_index *index, bool *misses_keys)
{
    struct skim skim = {.cursor = {.bytes = bytes, .size = size}, .index = index};
    uint64_t texts = 0;
    bool done = !gguf_check_header(&skim.cursor, index, NULL);
    skim.n_values_max = index->n_values;
    skim.n_tensors = index->n_tensors;
    index->n_values = index->n_tensors = 0;
    index->values = mem_new_array(skim.n_values_max + 1, sizeof *index->values);
    index->values_by_key = mem_new_array(skim.n_values_max + 1, sizeof *index->values_by_key);
    done = done && skim.n_tensors && index->values && index->values_by_key &&
           skim_keys(&skim, &texts) && (!texts || skim_beyond(&skim, texts));
    *misses_keys = skim.n_values_max - index->n_values > skim.n_jumps;
    if (!done)
        gguf_index_deinit(index);
    return done;
}
