#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretokenizer.h"

#include "base/mem.h"
#include "base/work_limit.h"
#include "model/unicode.h"

#include <assert.h>
#include <pcre2.h>
#include <string.h>

struct pretokenizer {
    const struct pretokenizer_rule *rule;
    pcre2_general_context *memory;
    pcre2_match_context
        *limits; /* read-only, so that threads share it; JIT code uses the machine stack */
    pcre2_code *codes[PRETOKENIZER_PATTERNS];
    bool has_jit[PRETOKENIZER_PATTERNS]; /* without JIT the same code is interpreted */
    bool any_classes, any_code_points;
};

static void *pretokenizer_allocate(size_t size, void *arg)
{
    return mem_new(size);
}

static void pretokenizer_release(void *memory, void *arg)
{
    mem_free(memory);
}

static enum error_code pretokenizer_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory");
}

static enum error_code pretokenizer_compile(struct pretokenizer *pretokenizer, uint32_t index,
                                            struct error *err)
{
    const char *regex = pretokenizer->rule->patterns[index].regex;
    bool wide = pretokenizer->rule->patterns[index].kind == SPLIT_CODE_POINTS;
    pcre2_compile_context *context = pcre2_compile_context_create(pretokenizer->memory);
    if (!context)
        return pretokenizer_no_memory(err);
    int problem;
    size_t at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, wide ? PCRE2_UTF : 0,
                                     &problem, &at, context);
    pcre2_compile_context_free(context);
    if (!code && (problem == PCRE2_ERROR_NOMEMORY || problem == PCRE2_ERROR_HEAP_FAILED))
        return pretokenizer_no_memory(err);
    if (!code) {
        char text[128];
        pcre2_get_error_message(problem, (PCRE2_UCHAR *)text, sizeof text);
        return error_set(err, ERROR_INTERNAL, "pattern %u of '%s': %s at %zu", index,
                         pretokenizer->rule->names, text, at);
    }
    pretokenizer->codes[index] = code;
    pretokenizer->has_jit[index] = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    return ERROR_NONE;
}

static enum error_code pretokenizer_prepare(struct pretokenizer *pretokenizer, struct error *err)
{
    pretokenizer->memory =
        pcre2_general_context_create(pretokenizer_allocate, pretokenizer_release, NULL);
    if (!pretokenizer->memory)
        return pretokenizer_no_memory(err);
    pretokenizer->limits = pcre2_match_context_create(pretokenizer->memory);
    if (!pretokenizer->limits)
        return pretokenizer_no_memory(err);
    /* The patterns are ours and match in linear time; a limit could only refuse valid text. */
    pcre2_set_match_limit(pretokenizer->limits, UINT32_MAX);
    pcre2_set_depth_limit(pretokenizer->limits, UINT32_MAX);
    pcre2_set_heap_limit(pretokenizer->limits, UINT32_MAX);
    for (uint32_t i = 0; i < PRETOKENIZER_PATTERNS && pretokenizer->rule->patterns[i].kind; i++) {
        if (pretokenizer->rule->patterns[i].kind == SPLIT_CODE_POINTS)
            pretokenizer->any_code_points = true;
        else
            pretokenizer->any_classes = true;
        if (!pretokenizer->rule->patterns[i].regex)
            continue;
        enum error_code code = pretokenizer_compile(pretokenizer, i, err);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

enum error_code pretokenizer_open(const struct pretokenizer_rule *rule, struct pretokenizer **out,
                                  struct error *err)
{
    assert(rule);
    *out = NULL;
    struct pretokenizer *pretokenizer = mem_new(sizeof *pretokenizer);
    if (!pretokenizer)
        return pretokenizer_no_memory(err);
    pretokenizer->rule = rule;
    enum error_code code = pretokenizer_prepare(pretokenizer, err);
    if (code)
        pretokenizer_close(pretokenizer);
    else
        *out = pretokenizer;
    return code;
}

void pretokenizer_close(struct pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (uint32_t i = 0; i < PRETOKENIZER_PATTERNS; i++)
        pcre2_code_free(pretokenizer->codes[i]);
    pcre2_match_context_free(pretokenizer->limits);
    pcre2_general_context_free(pretokenizer->memory);
    mem_free(pretokenizer);
}

void pretokenizer_scratch_deinit(struct pretokenizer_scratch *scratch)
{
    if (!scratch)
        return;
    mem_free(scratch->text);
    mem_free(scratch->ends);
    mem_free(scratch->next_ends);
    mem_free(scratch->classes);
    mem_free(scratch->wide);
    pcre2_match_data_free(scratch->match);
    *scratch = (struct pretokenizer_scratch){0};
}

/* ---- the text as characters and as classes ---- */

static bool pretokenizer_ensure(void **memory, size_t *capacity, size_t needed, size_t element)
{
    if (needed <= *capacity)
        return true;
    size_t count = *memory ? needed + needed / 2 : needed;
    void *grown = mem_resize(*memory, count, element);
    if (!grown)
        return false;
    *memory = grown;
    *capacity = count;
    return true;
}

static bool add_end(struct pretokenizer_scratch *scratch, size_t end)
{
    if (!work_limit_goes_on())
        return false;
    if (scratch->n_next == scratch->next_capacity &&
        !pretokenizer_ensure((void **)&scratch->next_ends, &scratch->next_capacity,
                             scratch->n_next + 256, sizeof(size_t)))
        return false;
    scratch->next_ends[scratch->n_next++] = end;
    return true;
}

/* The characters of the input become text, classes and, where a pattern asks for it, the text as
 * that pattern sees it: valid UTF-8 in which \s knows every space. */
static enum error_code take_text(const struct pretokenizer *pretokenizer, const char *text,
                                 size_t size, struct pretokenizer_scratch *scratch,
                                 struct error *err)
{
    /* U+FFFD takes three bytes where one was; a stand-in is never longer than that. */
    size_t worst = size > SIZE_MAX / 8 ? SIZE_MAX : size * 3;
    if (!pretokenizer_ensure((void **)&scratch->text, &scratch->text_capacity, worst, 1) ||
        !pretokenizer_ensure((void **)&scratch->classes, &scratch->classes_capacity, size, 1) ||
        (pretokenizer->any_code_points &&
         !pretokenizer_ensure((void **)&scratch->wide, &scratch->wide_capacity, worst, 1)))
        return pretokenizer_no_memory(err);
    bool han = pretokenizer->rule->flags & PRE_HAN;
    size_t n_chars = 0, written = 0, wide = 0;
    for (size_t at = 0; at < size; n_chars++) {
        if ((unsigned char)text[at] < 0x80) {
            scratch->classes[n_chars] = (uint8_t)text[at];
            scratch->text[written++] = text[at];
            if (pretokenizer->any_code_points)
                scratch->wide[wide++] = text[at];
            at++;
            continue;
        }
        size_t length;
        uint32_t code_point = unicode_decode(text + at, size - at, &length);
        at += length;
        written += unicode_encode(code_point, scratch->text + written);
        uint8_t class = han && unicode_is_han(code_point) ? CLASS_HAN : unicode_class(code_point);
        scratch->classes[n_chars] = class;
        if (!pretokenizer->any_code_points)
            continue;
        bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
        uint32_t seen = class == CLASS_SPACE ? CLASS_SPACE : surrogate ? 0xE000 : code_point;
        wide += unicode_encode(seen, scratch->wide + wide);
    }
    scratch->size = written;
    scratch->n_chars = n_chars;
    return ERROR_NONE;
}

/* ---- one pattern over all pieces ----
 * A piece is [start, end) in characters; `subject` starts at the piece and has one byte a
 * character, or UTF-8 when wide. */

static size_t bytes_of(const char *utf8, size_t n_chars)
{
    size_t bytes = 0;
    for (; n_chars; n_chars--)
        bytes += unicode_length(utf8[bytes]);
    return bytes;
}

static size_t chars_of(const char *utf8, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)utf8[i] & 0xC0) != 0x80;
    return count;
}

static int pretokenizer_match_at(const struct pretokenizer *pretokenizer, uint32_t index,
                                 const char *subject, size_t size, size_t from,
                                 pcre2_match_data *match)
{
    const pcre2_code *code = pretokenizer->codes[index];
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (pretokenizer->has_jit[index]) /* straight into the machine code: a third faster than
                                         pcre2_match() */
        found =
            pcre2_jit_match(code, (PCRE2_SPTR)subject, size, from, 0, match, pretokenizer->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
        found = pcre2_match(code, (PCRE2_SPTR)subject, size, from,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, pretokenizer->limits);
    return found;
}

static enum error_code split_piece(const struct pretokenizer *pretokenizer, uint32_t index,
                                   const char *subject, size_t size, bool wide, size_t start,
                                   struct pretokenizer_scratch *scratch, struct error *err)
{
    size_t done = 0,
           end = start; /* bytes of the piece that are cut, and where that is in characters */
    const size_t *found = pcre2_get_ovector_pointer(scratch->match);
    while (done < size) {
        int result =
            pretokenizer_match_at(pretokenizer, index, subject, size, done, scratch->match);
        if (result == PCRE2_ERROR_NOMATCH)
            break;
        if (result < 0)
            return error_set(err, result == PCRE2_ERROR_NOMEMORY ? ERROR_NO_MEMORY : ERROR_INTERNAL,
                             "matching '%s' failed (PCRE2 error %d)", pretokenizer->rule->names,
                             result);
        assert(found[1] > found[0] && found[0] >= done);
        for (int edge = 0; edge < 2; edge++) { /* what lies before the match, then the match */
            if (found[edge] == done)
                continue;
            end += wide ? chars_of(subject + done, found[edge] - done) : found[edge] - done;
            done = found[edge];
            if (!add_end(scratch, end))
                return pretokenizer_no_memory(err);
        }
    }
    if (done < size) {
        end += wide ? chars_of(subject + done, size - done) : size - done;
        if (!add_end(scratch, end))
            return pretokenizer_no_memory(err);
    }
    return ERROR_NONE;
}

static bool is_number(uint8_t class)
{
    return class == CLASS_NUMBER || (class >= '0' && class <= '9');
}

/* Both rules for groups of three digits. The first leaves what stands before the digits in one
 * piece with their first group, as libllama does; the patterns after it cut there. */
static enum error_code split_digits(const uint8_t *classes, size_t size, size_t start, bool before,
                                    struct pretokenizer_scratch *scratch, struct error *err)
{
    size_t cut = 0;
    for (size_t at = 0; at < size;) {
        size_t end = at;
        while (end < size &&
               (before ? classes[end] >= '0' && classes[end] <= '9' : is_number(classes[end])))
            end++;
        size_t first = at + (end - at) % 3;
        if (!before && first == at)
            first += 3;
        for (size_t here = first; before ? here < end : here <= end && here > at; here += 3) {
            if (here > cut && !add_end(scratch, start + here))
                return pretokenizer_no_memory(err);
            cut = here;
        }
        at = end + (end == at);
    }
    if (cut < size && !add_end(scratch, start + size))
        return pretokenizer_no_memory(err);
    return ERROR_NONE;
}

static enum error_code pretokenizer_apply(const struct pretokenizer *pretokenizer, uint32_t index,
                                          struct pretokenizer_scratch *scratch, struct error *err)
{
    enum split_kind kind = pretokenizer->rule->patterns[index].kind;
    bool wide = kind == SPLIT_CODE_POINTS;
    const char *subject = wide ? scratch->wide : (const char *)scratch->classes;
    scratch->n_next = 0;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0, start = 0; i < scratch->n_words && !code; start = scratch->ends[i++]) {
        size_t n_chars = scratch->ends[i] - start;
        size_t size = wide ? bytes_of(subject, n_chars) : n_chars;
        if (pretokenizer->codes[index])
            code = split_piece(pretokenizer, index, subject, size, wide, start, scratch, err);
        else
            code = split_digits((const uint8_t *)subject, size, start, kind == SPLIT_BEFORE_GROUPS,
                                scratch, err);
        subject += size;
    }
    size_t *ends = scratch->ends, capacity = scratch->ends_capacity;
    scratch->ends = scratch->next_ends;
    scratch->ends_capacity = scratch->next_capacity;
    scratch->next_ends = ends;
    scratch->next_capacity = capacity;
    scratch->n_words = scratch->n_next;
    return code;
}

enum error_code pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text,
                                   size_t size, struct pretokenizer_scratch *scratch,
                                   struct error *err)
{
    scratch->n_words = scratch->n_next = 0;
    if (!scratch->match && !(scratch->match = pcre2_match_data_create(1, pretokenizer->memory)))
        return pretokenizer_no_memory(err);
    enum error_code code = take_text(pretokenizer, text, size, scratch, err);
    if (code || !scratch->n_chars)
        return code;
    if (!pretokenizer_ensure((void **)&scratch->ends, &scratch->ends_capacity, 1, sizeof(size_t)))
        return pretokenizer_no_memory(err);
    scratch->ends[0] = scratch->n_chars;
    scratch->n_words = 1;
    for (uint32_t i = 0; i < PRETOKENIZER_PATTERNS && pretokenizer->rule->patterns[i].kind && !code;
         i++)
        code = pretokenizer_apply(pretokenizer, i, scratch, err);
    if (code || scratch->n_chars == scratch->size)
        return code;
    for (size_t i = 0, chars = 0, bytes = 0; i < scratch->n_words; i++) {
        size_t end = scratch->ends[i];
        bytes += bytes_of(scratch->text + bytes, end - chars);
        chars = end;
        scratch->ends[i] = bytes;
    }
    return ERROR_NONE;
}
