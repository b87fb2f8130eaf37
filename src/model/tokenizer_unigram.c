/* Unigram (Kudo 2018, arXiv:1804.10959), as sentencepiece has it for T5 and XLM-R: of all ways to
 * cut the normalised text into tokens the one with the highest sum of scores, found from left to
 * right (Viterbi). What is no token costs more than any token and is unknown; unknowns side by side
 * are one. */
#include "base/mem.h"
#include "base/work_limit.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"

#include <float.h>
#include <string.h>

static const float unknown_penalty = 10.0f; /* below the lowest score */
static const char key_charsmap[] = "tokenizer.ggml.precompiled_charsmap";

/* ---- the normaliser ----
 * sentencepiece's `precompiled_charsmap`: a double array (Aoe 1989) whose keys are texts, and the
 * texts that take their place. A unit of the array has its label in the lowest 8 bits, and says
 * where its children are, and whether a key ends there; that child's value is an offset into the
 * replacements. */

static uint32_t charsmap_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

static enum error_code charsmap_bad(struct error *err)
{
    return error_set(err, ERROR_INVALID, "%s is damaged", key_charsmap);
}

/* 4 bytes of size, the array, replacements that each end with a NUL. */
static enum error_code charsmap_take(struct charsmap *map, const uint32_t *bytes, uint64_t n,
                                     struct error *err)
{
    if (n < 4)
        return charsmap_bad(err);
    const uint64_t array = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint64_t)bytes[3] << 24;
    if (array % 4 || array > n - 4 || array / 4 > UINT32_MAX || (n - 4 - array && bytes[n - 1]))
        return charsmap_bad(err);
    map->n_units = (uint32_t)(array / 4);
    map->n_replacements = (size_t)(n - 4 - array);
    map->units = mem_new_array(map->n_units ? map->n_units : 1, sizeof *map->units);
    map->replacements = mem_new_array(map->n_replacements ? map->n_replacements : 1, 1);
    if (!map->units || !map->replacements)
        return tokenizer_no_memory(err);
    const uint32_t *from = bytes + 4;
    for (uint32_t i = 0; i < map->n_units; i++, from += 4)
        map->units[i] = from[0] | from[1] << 8 | from[2] << 16 | from[3] << 24;
    for (size_t i = 0; i < map->n_replacements; i++)
        map->replacements[i] = (char)from[i];
    return ERROR_NONE;
}

static enum error_code charsmap_load(struct charsmap *map, const struct gguf_file *file,
                                     struct error *err)
{
    uint64_t n;
    if (!gguf_file_has(file, key_charsmap))
        return ERROR_NONE;
    enum error_code code = gguf_file_array(file, key_charsmap, GGUF_ARRAY_U32, &n, err);
    if (code)
        return code;
    uint32_t *bytes = mem_new_array(n ? n : 1, sizeof *bytes);
    if (!bytes)
        return tokenizer_no_memory(err);
    if (n)
        gguf_file_array_u32s(file, key_charsmap, bytes);
    for (uint64_t i = 0; i < n && !code; i++)
        code = bytes[i] > UINT8_MAX ? charsmap_bad(err) : ERROR_NONE;
    if (!code)
        code = charsmap_take(map, bytes, n, err);
    mem_free(bytes);
    return code;
}

/* The longest key that the text begins with: its bytes, 0 for none. */
static size_t charsmap_find(const struct charsmap *map, const char *text, size_t size,
                            const char **replacement)
{
    size_t longest = 0;
    uint32_t node = map->n_units ? charsmap_offset(map->units[0]) : 0;
    for (size_t at = 0; at < size; at++) {
        const uint8_t byte = (uint8_t)text[at];
        node ^= byte;
        if (!byte || node >= map->n_units || (map->units[node] & (1u << 31 | 0xFF)) != byte)
            break;
        const uint32_t unit = map->units[node];
        node ^= charsmap_offset(unit);
        if (!(unit & 1u << 8) || node >= map->n_units)
            continue;
        const uint32_t offset = map->units[node] & ~(1u << 31);
        if (offset < map->n_replacements) {
            longest = at + 1;
            *replacement = map->replacements + offset;
        }
    }
    return longest;
}

struct unigram_text {
    struct buffer text; /* normalised, "▁" for every space that stays */
    bool is_in_word, has_start;
};

static void unigram_add(const struct tokenizer *tokenizer, struct unigram_text *to,
                        const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == ' ') {
            to->is_in_word = false;
            if (!tokenizer->merges_spaces)
                spaces_escape(" ", 1, &to->text);
            continue;
        }
        if (!to->is_in_word &&
            ((tokenizer->add_space_prefix && !to->has_start) || tokenizer->merges_spaces)) {
            spaces_escape(" ", 1, &to->text);
            to->has_start = true;
        }
        to->is_in_word = true;
        buffer_append(&to->text, bytes + i, 1);
    }
}

/* A character that no key begins with stays; a byte that is none becomes U+FFFD. */
static size_t unigram_character(const char *text, size_t size, const char **as, size_t *as_size)
{
    size_t length;
    const uint32_t code_point = unicode_decode(text, size, &length);
    const bool is_bad = code_point == UNICODE_REPLACEMENT && length == 1;
    *as = is_bad ? "\xEF\xBF\xBD" : text;
    *as_size = is_bad ? 3 : length;
    return length;
}

static enum error_code unigram_normalise(const struct tokenizer *tokenizer, const char *text,
                                         size_t size, struct unigram_text *out, struct error *err)
{
    enum { GROWTH_MAX = 32, GROWTH_FREE = 4096 }; /* a key of 3 bytes may stand for 33 */
    for (size_t at = 0; at < size;) {
        const char *as = NULL;
        size_t as_size, length = charsmap_find(&tokenizer->charsmap, text + at, size - at, &as);
        if (length)
            as_size = strlen(as);
        else
            length = unigram_character(text + at, size - at, &as, &as_size);
        unigram_add(tokenizer, out, as, as_size);
        at += length;
        if (out->text.failed)
            return tokenizer_no_memory(err);
        if (out->text.size > GROWTH_MAX * size + GROWTH_FREE)
            return error_set(err, ERROR_INVALID, "%s makes too much of a text", key_charsmap);
        if (!work_limit_goes_on())
            return tokenizer_given_up(err);
    }
    return ERROR_NONE;
}

/* ---- the best way ---- */

struct unigram_end { /* of the text up to here */
    double score;
    uint32_t start; /* of the last token */
    int32_t token;
};

static void unigram_offer(struct unigram_end *end, double score, size_t start, int32_t token)
{
    if (score > end->score)
        *end = (struct unigram_end){score, (uint32_t)start, token};
}

/* All tokens that begin here, and the unknown one where none is this character. */
static void unigram_go_on(const struct tokenizer *tokenizer, const char *text, size_t size,
                          size_t at, struct unigram_end *ends)
{
    struct prefix_walk walk = token_prefixes_walk(&tokenizer->prefixes);
    size_t character = unicode_length(text[at]);
    if (character > size - at)
        character = size - at;
    bool is_known = false;
    int32_t token;
    for (size_t end = at; end < size;) {
        if (!prefix_walk_step(&tokenizer->prefixes, &walk, text[end++], &token))
            break;
        if (token < 0)
            continue;
        const bool is_free = tokenizer->attributes[token] & ATTRIBUTE_USER_DEFINED;
        is_known |= end - at == character;
        unigram_offer(&ends[end], ends[at].score + (is_free ? 0 : (double)tokenizer->scores[token]),
                      at, token);
    }
    if (!is_known)
        unigram_offer(&ends[at + character],
                      ends[at].score + (double)(tokenizer->score_min - unknown_penalty), at,
                      tokenizer->unknown);
}

/* From the end to the beginning, then turned round. */
static enum error_code unigram_emit(const struct tokenizer *tokenizer,
                                    const struct unigram_end *ends, size_t size,
                                    struct token_list *out, struct error *err)
{
    const size_t first = out->count;
    enum error_code code = ERROR_NONE;
    bool was_unknown = false;
    for (size_t at = size; at && !code; at = ends[at].start) {
        const bool is_unknown = ends[at].token == tokenizer->unknown;
        if (!is_unknown || !was_unknown)
            code = token_list_push(out, ends[at].token, err);
        was_unknown = is_unknown;
    }
    for (size_t low = first, high = out->count; low + 1 < high; low++, high--) {
        const int32_t token = out->ids[low];
        out->ids[low] = out->ids[high - 1];
        out->ids[high - 1] = token;
    }
    return code;
}

static enum error_code unigram_cut(const struct tokenizer *tokenizer, const char *text, size_t size,
                                   struct token_list *out, struct error *err)
{
    if (!size)
        return ERROR_NONE;
    struct unigram_end *ends = mem_new_array(size + 1, sizeof *ends);
    if (!ends)
        return tokenizer_no_memory(err);
    for (size_t i = 1; i <= size; i++)
        ends[i].score = -DBL_MAX;
    enum error_code code = ERROR_NONE;
    for (size_t at = 0; at < size && !code; at += unicode_length(text[at])) {
        unigram_go_on(tokenizer, text, size, at, ends);
        if (!work_limit_goes_on())
            code = tokenizer_given_up(err);
    }
    if (!code)
        code = unigram_emit(tokenizer, ends, size, out, err);
    mem_free(ends);
    return code;
}

enum error_code unigram_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                               struct token_list *out, struct error *err)
{
    struct unigram_text normalised = {0};
    enum error_code code = unigram_normalise(tokenizer, text, size, &normalised, err);
    if (!code)
        code = unigram_cut(tokenizer, normalised.text.data, normalised.text.size, out, err);
    buffer_deinit(&normalised.text);
    return code;
}

/* ---- open ---- */

enum error_code unigram_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                             struct error *err)
{
    enum { TAKEN = ATTRIBUTE_NORMAL | ATTRIBUTE_USER_DEFINED | ATTRIBUTE_UNUSED };
    if (tokenizer->unknown == TOKEN_NONE)
        return error_set(err, ERROR_INVALID, "a Unigram vocabulary needs an unknown token");
    bool *wanted = mem_new_array(tokenizer->n_tokens, sizeof *wanted);
    if (!wanted)
        return tokenizer_no_memory(err);
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        wanted[i] = tokenizer->attributes[i] & TAKEN;
        if ((tokenizer->attributes[i] & ATTRIBUTE_NORMAL) &&
            tokenizer->scores[i] < tokenizer->score_min)
            tokenizer->score_min = tokenizer->scores[i];
    }
    const bool ok =
        token_prefixes_init(&tokenizer->prefixes, &tokenizer->texts, tokenizer->n_tokens, wanted);
    mem_free(wanted);
    return ok ? charsmap_load(&tokenizer->charsmap, file, err) : tokenizer_no_memory(err);
}
