/* WordPiece (Schuster and Nakajima 2012) as BERT uses it: words are cut at white space, punctuation
 * and Han characters, lowered and stripped of accents; of each word the longest token is taken
 * again and again. A word of which a part is no token is unknown as a whole.
 *
 * As libllama: the file spells "##ing" as "ing" and "sing" as "▁sing". A character with a canonical
 * decomposition becomes its first part. */
#include "base/work_limit.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"

#include <string.h>

static const char word_start[] = "\xE2\x96\x81";
enum { WORD_START_BYTES = sizeof word_start - 1 };

struct wordpiece_run {
    const struct tokenizer *tokenizer;
    struct buffer word; /* with its start; empty: between words */
    struct token_list *out;
    struct error *err;
};

/* The longest token at the beginning of the text; 0: none. */
static size_t wordpiece_longest(const struct tokenizer *tokenizer, const char *text, size_t size,
                                int32_t *longest)
{
    struct prefix_walk walk = token_prefixes_walk(&tokenizer->prefixes);
    size_t length = 0;
    int32_t token;
    for (size_t at = 0; at < size; at++) {
        if (!prefix_walk_step(&tokenizer->prefixes, &walk, text[at], &token))
            break;
        if (token >= 0) {
            length = at + 1;
            *longest = token;
        }
    }
    return length;
}

static enum error_code wordpiece_end_word(struct wordpiece_run *run)
{
    const struct tokenizer *tokenizer = run->tokenizer;
    const size_t n_before = run->out->count;
    enum error_code code = run->word.failed ? tokenizer_no_memory(run->err) : ERROR_NONE;
    bool is_known = run->word.size > 0;
    for (size_t at = 0, length; is_known && at < run->word.size && !code; at += length) {
        int32_t token = TOKEN_NONE;
        length = wordpiece_longest(tokenizer, run->word.data + at, run->word.size - at, &token);
        is_known = length > 0;
        if (is_known)
            code = token_list_push(run->out, token, run->err);
        if (!code && !work_limit_goes_on())
            code = tokenizer_given_up(run->err);
    }
    if (!code && run->word.size && !is_known) {
        run->out->count = n_before;
        code = token_list_push(run->out, tokenizer->unknown, run->err);
    }
    buffer_clear(&run->word);
    return code;
}

static void wordpiece_add(struct wordpiece_run *run, uint32_t code_point)
{
    char utf8[4];
    if (!run->word.size)
        buffer_append(&run->word, word_start, WORD_START_BYTES);
    buffer_append(&run->word, utf8, unicode_encode(code_point, utf8));
}

/* Every character that is no letter, digit or control character stands for itself in ASCII;
 * beyond, only punctuation does. */
static bool wordpiece_stands_alone(uint32_t code_point)
{
    if (code_point < 0x80)
        return (code_point >= '!' && code_point <= '/') ||
               (code_point >= ':' && code_point <= '@') ||
               (code_point >= '[' && code_point <= '`') || (code_point >= '{' && code_point <= '~');
    return unicode_class(code_point) == CLASS_PUNCTUATION || unicode_is_han(code_point);
}

static bool wordpiece_is_dropped(const struct tokenizer *tokenizer, uint32_t code_point)
{
    if (code_point < 0x80)
        return code_point < 0x20 || code_point == 0x7F;
    const uint8_t class = unicode_class(code_point);
    return code_point == UNICODE_REPLACEMENT || class == CLASS_OTHER ||
           (tokenizer->strips_accents && class == CLASS_MARK);
}

enum error_code wordpiece_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 struct token_list *out, struct error *err)
{
    struct wordpiece_run run = {.tokenizer = tokenizer, .out = out, .err = err};
    enum error_code code = ERROR_NONE;
    for (size_t at = 0, length; at < size && !code; at += length) {
        uint32_t code_point = unicode_decode(text + at, size - at, &length);
        if (tokenizer->strips_accents)
            code_point = unicode_base(code_point);
        if (unicode_is_space(code_point)) {
            code = wordpiece_end_word(&run);
            continue;
        }
        if (wordpiece_is_dropped(tokenizer, code_point))
            continue;
        const bool is_alone = wordpiece_stands_alone(code_point);
        if (is_alone)
            code = wordpiece_end_word(&run);
        wordpiece_add(&run, tokenizer->lowers ? unicode_lower(code_point) : code_point);
        if (is_alone && !code)
            code = wordpiece_end_word(&run);
    }
    if (!code)
        code = wordpiece_end_word(&run);
    buffer_deinit(&run.word);
    return code;
}
