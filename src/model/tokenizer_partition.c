/* Cuts a text at its special tokens.
 *
 * libllama looks for them one by one, the longest first, each in what the ones before left. With
 * thousands of special tokens that is slow, so one walk over the text first finds out which of
 * them occur at all: at each position a binary search narrows the sorted list byte by byte. */
#include "base/mem.h"
#include "base/work_limit.h"
#include "model/tokenizer_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_EVERY_BYTES = 256 }; /* whether the work goes on */

static const char *tokenizer_partition_text_of(const struct tokenizer *tokenizer, uint32_t token,
                                               size_t *size)
{
    return text_table_at(&tokenizer->texts, token, size);
}

static int compare_texts(const void *a, const void *b, void *arg)
{
    size_t a_size, b_size;
    const char *a_text = tokenizer_partition_text_of(arg, *(const uint32_t *)a, &a_size);
    const char *b_text = tokenizer_partition_text_of(arg, *(const uint32_t *)b, &b_size);
    int order = memcmp(a_text, b_text, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int compare_lengths(const void *a, const void *b, void *arg)
{
    const struct tokenizer *tokenizer = arg;
    uint32_t a_token = tokenizer->specials.by_text[*(const uint32_t *)a];
    uint32_t b_token = tokenizer->specials.by_text[*(const uint32_t *)b];
    size_t a_size, b_size;
    tokenizer_partition_text_of(tokenizer, a_token, &a_size);
    tokenizer_partition_text_of(tokenizer, b_token, &b_size);
    if (a_size != b_size)
        return a_size > b_size ? -1 : 1;
    return (a_token > b_token) - (a_token < b_token);
}

enum error_code special_set_load(struct tokenizer *tokenizer, struct error *err)
{
    struct special_set *set = &tokenizer->specials;
    uint32_t count = 0;
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++)
        count += (tokenizer->attributes[i] & ATTRIBUTE_SPECIAL) != 0;
    set->by_text = mem_new_array(count, sizeof *set->by_text);
    set->by_length = mem_new_array(count, sizeof *set->by_length);
    if (!set->by_text || !set->by_length)
        return tokenizer_no_memory(err);
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        if (!(tokenizer->attributes[i] & ATTRIBUTE_SPECIAL))
            continue;
        size_t size;
        set->first_bytes[(uint8_t)tokenizer_partition_text_of(tokenizer, i, &size)[0]] = true;
        set->by_text[set->count++] = i;
    }
    assert(set->count == count);
    qsort_r(set->by_text, count, sizeof *set->by_text, compare_texts, tokenizer);
    for (uint32_t i = 0; i < count; i++)
        set->by_length[i] = i;
    qsort_r(set->by_length, count, sizeof *set->by_length, compare_lengths, tokenizer);
    return ERROR_NONE;
}

/* The byte at `depth` of special token `index`; -1: its text ends there. */
static int byte_at(const struct tokenizer *tokenizer, uint32_t index, size_t depth)
{
    size_t size;
    const char *text =
        tokenizer_partition_text_of(tokenizer, tokenizer->specials.by_text[index], &size);
    return depth < size ? (uint8_t)text[depth] : -1;
}

/* The first of [low, high) whose byte at `depth` is at least `byte`; all share the bytes before. */
static uint32_t tokenizer_partition_lower_bound(const struct tokenizer *tokenizer, uint32_t low,
                                                uint32_t high, size_t depth, int byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (byte_at(tokenizer, middle, depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Marks the special tokens that stand at the start of `text`. */
static void mark_here(const struct tokenizer *tokenizer, const char *text, size_t size,
                      bool *occurs)
{
    uint32_t low = 0, high = tokenizer->specials.count;
    for (size_t depth = 0; low < high; depth++) {
        if (high - low == 1 && occurs[low])
            return;
        if (byte_at(tokenizer, low, depth) < 0)
            occurs[low++] = true; /* texts differ, so only one can end here */
        if (depth == size)
            return;
        int byte = (uint8_t)text[depth];
        low = tokenizer_partition_lower_bound(tokenizer, low, high, depth, byte);
        high = tokenizer_partition_lower_bound(tokenizer, low, high, depth, byte + 1);
    }
}

static enum error_code tokenizer_partition_add(struct fragment_list *list, struct fragment item,
                                               struct error *err)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        struct fragment *items = mem_resize(list->items, capacity, sizeof *items);
        if (!items)
            return tokenizer_no_memory(err);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return ERROR_NONE;
}

static bool is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Cuts one stretch at every occurrence of the token. */
static enum error_code tokenizer_partition_cut(const struct tokenizer *tokenizer, const char *text,
                                               struct fragment piece, uint32_t token,
                                               struct fragment_list *out, struct error *err)
{
    size_t length;
    const char *wanted = tokenizer_partition_text_of(tokenizer, token, &length);
    unsigned attributes = tokenizer->attributes[token];
    enum error_code code = ERROR_NONE;
    while (piece.size && !code) {
        if (!work_limit_goes_on())
            return tokenizer_given_up(err);
        const char *found = memmem(text + piece.start, piece.size, wanted, length);
        if (!found)
            return tokenizer_partition_add(out, piece, err);
        size_t at = (size_t)(found - text), left_end = at;
        while ((attributes & ATTRIBUTE_LEFT_STRIP) && left_end > piece.start &&
               is_blank(text[left_end - 1]))
            left_end--;
        if (left_end > piece.start)
            code = tokenizer_partition_add(
                out, (struct fragment){piece.start, left_end - piece.start, TOKEN_NONE}, err);
        if (!code)
            code = tokenizer_partition_add(out, (struct fragment){at, length, (int32_t)token}, err);
        size_t end = piece.start + piece.size;
        piece.start = at + length;
        while ((attributes & ATTRIBUTE_RIGHT_STRIP) && piece.start < end &&
               is_blank(text[piece.start]))
            piece.start++;
        piece.size = end - piece.start;
    }
    return code;
}

static enum error_code cut_all(const struct tokenizer *tokenizer, const char *text,
                               const bool *occurs, bool parse_special, struct fragment_list *out,
                               struct error *err)
{
    const struct special_set *set = &tokenizer->specials;
    struct fragment_list next = {0};
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < set->count && !code; i++) {
        uint32_t token = set->by_text[set->by_length[i]];
        if (!occurs[set->by_length[i]] ||
            (!parse_special && (tokenizer->attributes[token] & ATTRIBUTE_HIDDEN)))
            continue;
        next.count = 0;
        for (size_t k = 0; k < out->count && !code; k++) {
            if (out->items[k].token == TOKEN_NONE)
                code = tokenizer_partition_cut(tokenizer, text, out->items[k], token, &next, err);
            else
                code = tokenizer_partition_add(&next, out->items[k], err);
        }
        struct fragment_list before = *out;
        *out = next;
        next = before;
    }
    mem_free(next.items);
    return code;
}

enum error_code partition_text(const struct tokenizer *tokenizer, const char *text, size_t size,
                               bool parse_special, struct fragment_list *out, struct error *err)
{
    out->count = 0;
    if (!size)
        return ERROR_NONE;
    enum error_code code =
        tokenizer_partition_add(out, (struct fragment){0, size, TOKEN_NONE}, err);
    if (code || !tokenizer->specials.count)
        return code;
    bool *occurs = mem_new_array(tokenizer->specials.count, sizeof *occurs);
    if (!occurs)
        return tokenizer_no_memory(err);
    for (size_t at = 0; at < size && !code; at++) {
        if (at % ASK_EVERY_BYTES == 0 && !work_limit_goes_on())
            code = tokenizer_given_up(err);
        if (tokenizer->specials.first_bytes[(uint8_t)text[at]])
            mark_here(tokenizer, text + at, size - at, occurs);
    }
    if (!code)
        code = cut_all(tokenizer, text, occurs, parse_special, out, err);
    mem_free(occurs);
    return code;
}
