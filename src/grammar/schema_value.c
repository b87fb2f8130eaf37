/* Numbers and strings of a branch: automata, met one after another. */
#include "base/mem.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <string.h>

bool schema_decimal(struct schema *schema, yyjson_mut_val *owner, const char *keyword,
                    yyjson_mut_val *value, struct decimal *out)
{
    if (!yyjson_mut_is_raw(value))
        schema_refuse(schema, ERROR_INVALID, owner, keyword, "must be a number");
    else if (!decimal_read(yyjson_mut_get_raw(value), yyjson_mut_get_len(value), out))
        schema_refuse(schema, ERROR_BUSY, owner, keyword, "the number has too many digits");
    return !schema->code;
}

/* Keeps what an automaton's making said, as the keyword's. */
static struct dfa *schema_dfa(struct schema *schema, yyjson_mut_val *owner, const char *keyword,
                              enum error_code code, struct dfa *dfa, const struct error *why)
{
    if (code)
        schema_refuse(schema, code, owner, keyword, why->text);
    return schema->code ? (dfa_free(code ? NULL : dfa), NULL) : dfa;
}

struct dfa *schema_pattern(struct schema *schema, yyjson_mut_val *owner, const char *keyword,
                           const char *text, size_t size)
{
    struct dfa *dfa = NULL;
    struct error why;
    const enum error_code code = regex_compile(text, size, true, &dfa, &why);
    return schema_dfa(schema, owner, keyword, code, dfa, &why);
}

/* What both accept; `dfa` NULL: all. Frees both. */
static struct dfa *schema_meet(struct schema *schema, yyjson_mut_val *owner, const char *keyword,
                               struct dfa *dfa, struct dfa *more, bool is_negated)
{
    struct dfa *met = NULL;
    struct error why;
    enum error_code code = ERROR_NONE;
    if (!more || schema->code) {
        dfa_free(dfa);
        dfa_free(more);
        return NULL;
    }
    if (!dfa && !is_negated)
        return more;
    if (dfa)
        code = dfa_both(dfa, false, more, is_negated, &met, &why);
    else
        code = dfa_inverted(more, &met, &why);
    dfa_free(dfa);
    dfa_free(more);
    return schema_dfa(schema, owner, keyword, code, met, &why);
}

static struct dfa *schema_expression(struct schema *schema, const char *expression)
{
    struct dfa *dfa = NULL;
    struct error why;
    const enum error_code code = regex_compile(expression, strlen(expression), false, &dfa, &why);
    return schema_dfa(schema, NULL, NULL, code, dfa, &why);
}

/* ---- numbers ---- */

/* One of several numbers: what is none of them, inverted. */
static struct dfa *schema_numbers(struct schema *schema, const struct schema_fact *fact)
{
    const size_t n = fact->n ? yyjson_mut_arr_size(fact->value) : 1;
    struct dfa *others = NULL;
    struct error why;
    for (size_t i = 0; i < n && !schema->code; i++) {
        yyjson_mut_val *value = fact->n ? yyjson_mut_arr_get(fact->value, i) : fact->value;
        struct decimal decimal;
        struct dfa *one = NULL;
        if (!yyjson_mut_is_raw(value) ||
            !schema_decimal(schema, fact->owner, fact->n ? "enum" : "const", value, &decimal))
            continue;
        const enum error_code code =
            number_compared(&decimal, NUMBER_LESS | NUMBER_MORE, &one, &why);
        one = schema_dfa(schema, fact->owner, NULL, code, one, &why);
        others = schema_meet(schema, fact->owner, NULL, others, one, false);
    }
    if (!others && !schema->code)
        return schema_expression(schema, "[]");
    return schema_meet(schema, fact->owner, NULL, schema_expression(schema, NUMBER_PLAIN), others,
                       true);
}

static struct dfa *schema_number_of(struct schema *schema, const struct schema_fact *fact)
{
    struct decimal decimal;
    struct dfa *dfa = NULL;
    struct error why;
    enum error_code code = ERROR_NONE;
    const char *keyword = fact->kind == FACT_MULTIPLE ? "multipleOf" : NULL;
    if (fact->kind == FACT_INTEGER)
        return schema_expression(schema, NUMBER_INTEGERS);
    if (fact->kind == FACT_NUMBERS)
        return schema_numbers(schema, fact);
    if (!schema_decimal(schema, fact->owner, keyword, fact->value, &decimal))
        return NULL;
    if (fact->kind == FACT_COMPARED)
        code = number_compared(&decimal, fact->n, &dfa, &why);
    else if (decimal.is_negative || !decimal.n_digits)
        schema_refuse(schema, ERROR_INVALID, fact->owner, keyword, "must be above 0");
    else
        code = number_multiple(&decimal, &dfa, &why);
    return schema->code ? NULL : schema_dfa(schema, fact->owner, keyword, code, dfa, &why);
}

uint32_t schema_write_number(struct schema *schema, const struct schema_branch *branch,
                             uint32_t then)
{
    struct dfa *dfa = NULL;
    bool is_whole = false, is_listed = false;
    for (uint32_t i = 0; i < branch->n_facts && !schema->code; i++) {
        const struct schema_fact *fact = &branch->facts[i];
        if (fact->kind > FACT_NUMBERS)
            continue;
        is_whole |= fact->kind == FACT_INTEGER && !fact->is_negated;
        is_listed |= fact->kind == FACT_NUMBERS && !fact->is_negated;
        if (!dfa)
            dfa = schema_expression(schema, NUMBER_PLAIN);
        dfa = schema_meet(schema, fact->owner, NULL, dfa, schema_number_of(schema, fact),
                          fact->is_negated);
    }
    if (!dfa && !schema->code)
        dfa = schema_expression(schema, NUMBER_ANY);
    else if (is_whole || is_listed)
        dfa = schema_meet(schema, NULL, NULL, dfa,
                          schema_expression(schema, is_whole ? NUMBER_WHOLE : NUMBER_SHORTEST),
                          false);
    const uint32_t entry = dfa ? encode_dfa(&schema->encoder, dfa, ENCODE_RAW, &then, NULL) : 0;
    dfa_free(dfa);
    return entry;
}

/* ---- strings ---- */

static struct dfa *schema_texts(struct schema *schema, const struct schema_fact *fact)
{
    const size_t n = fact->n ? yyjson_mut_arr_size(fact->value) : 1;
    struct dfa_text *texts = mem_new_array(n + 1, sizeof *texts);
    struct dfa *dfa = NULL;
    struct error why;
    uint32_t count = 0;
    if (!texts) {
        schema_no_memory(schema);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        yyjson_mut_val *value = fact->n ? yyjson_mut_arr_get(fact->value, i) : fact->value;
        if (yyjson_mut_is_str(value))
            texts[count++] =
                (struct dfa_text){yyjson_mut_get_str(value), yyjson_mut_get_len(value)};
    }
    const enum error_code code = dfa_of_texts(texts, count, &dfa, &why);
    mem_free(texts);
    for (uint32_t state = 0; !code && state < dfa->n_states; state++)
        dfa->labels[state] = dfa->labels[state] != 0; /* which of them does not matter here */
    return schema_dfa(schema, fact->owner, fact->n ? "enum" : "const", code, dfa, &why);
}

/* NULL without a failure: the fact says nothing. */
static struct dfa *schema_string_of(struct schema *schema, const struct schema_fact *fact)
{
    if (fact->kind == FACT_TEXTS)
        return schema_texts(schema, fact);
    const char *keyword = fact->kind == FACT_PATTERN ? "pattern" : "format";
    const char *text = yyjson_mut_get_str(fact->value);
    if (!text) {
        schema_refuse(schema, ERROR_INVALID, fact->owner, keyword, "must be a text");
        return NULL;
    }
    if (fact->kind == FACT_PATTERN)
        return schema_pattern(schema, fact->owner, keyword, text, yyjson_mut_get_len(fact->value));
    const char *expression = schema->annotate ? NULL : format_expression(text);
    return expression ? schema_expression(schema, expression) : NULL;
}

struct dfa *schema_strings(struct schema *schema, const struct schema_branch *branch,
                           bool with_lengths, uint32_t *n_min, uint32_t *n_max)
{
    struct dfa *dfa = NULL, *counted = NULL;
    struct error why;
    *n_min = 0;
    *n_max = GRAMMAR_MANY;
    for (uint32_t i = 0; i < branch->n_facts && !schema->code; i++) {
        const struct schema_fact *fact = &branch->facts[i];
        if (fact->kind == FACT_LENGTH_MIN && fact->n > *n_min)
            *n_min = fact->n;
        if (fact->kind == FACT_LENGTH_MAX && fact->n < *n_max)
            *n_max = fact->n;
        if (fact->kind != FACT_PATTERN && fact->kind != FACT_FORMAT && fact->kind != FACT_TEXTS)
            continue;
        struct dfa *more = schema_string_of(schema, fact);
        if (more || schema->code)
            dfa = schema_meet(schema, fact->owner, NULL, dfa, more, fact->is_negated);
    }
    const bool is_counted = *n_min > 0 || *n_max != GRAMMAR_MANY;
    if (with_lengths && is_counted && !dfa)
        dfa = schema_expression(schema, "[^]*");
    if (schema->code || !dfa || !is_counted)
        return dfa;
    const enum error_code code = dfa_with_length(dfa, *n_min, *n_max, &counted, &why);
    dfa_free(dfa);
    return schema_dfa(schema, NULL, NULL, code, counted, &why);
}

uint32_t schema_write_string(struct schema *schema, const struct schema_branch *branch,
                             uint32_t then)
{
    uint32_t n_min, n_max;
    struct dfa *dfa = schema_strings(schema, branch, false, &n_min, &n_max);
    if (schema->code)
        return 0;
    if (!dfa)
        return n_min <= n_max ? json_string(schema, n_min, n_max, then)
                              : program_split(schema->program, NULL, 0);
    const uint32_t body = encode_dfa(&schema->encoder, dfa, ENCODE_JSON, &then, NULL);
    dfa_free(dfa);
    return program_byte(schema->program, '"', body);
}
