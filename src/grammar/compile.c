#include "grammar/compile.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "grammar/calls.h"
#include "grammar/encode.h"
#include "grammar/regex.h"

#include <string.h>

static void compile_dfa(struct grammar *program, const struct dfa *dfa)
{
    struct encoder encoder = {.program = program};
    program_node(program, NODE_SPLIT); /* node 0 leads nowhere */
    program->root = program_rule(program);
    uint32_t n_labels = 1;
    for (uint32_t i = 0; i < dfa->n_states; i++)
        n_labels = dfa->labels[i] > n_labels ? dfa->labels[i] : n_labels;
    uint32_t *ends = mem_new_array(n_labels, sizeof *ends);
    const uint32_t end = program_return(program);
    if (!ends)
        program->code = ERROR_NO_MEMORY;
    for (uint32_t i = 0; ends && i < n_labels; i++)
        ends[i] = end;
    if (!program->code)
        program_set_rule(program, program->root, encode_dfa(&encoder, dfa, ENCODE_RAW, ends, NULL));
    encoder_deinit(&encoder);
    mem_free(ends);
}

static enum error_code compile_regex(const struct grammar_source *source, struct grammar *program,
                                     struct error *err)
{
    struct dfa *dfa = NULL;
    const enum error_code code = regex_compile(source->text, source->size, false, &dfa, err);
    if (!code)
        compile_dfa(program, dfa);
    dfa_free(dfa);
    return code;
}

static enum error_code compile_choice(const struct grammar_source *source, struct grammar *program,
                                      struct error *err)
{
    yyjson_doc *doc = yyjson_read_opts((char *)source->text, source->size, 0, &json_memory, NULL);
    yyjson_val *list = yyjson_doc_get_root(doc), *value;
    const size_t n = yyjson_arr_size(list);
    struct dfa_text *texts = mem_new_array(n + 1, sizeof *texts);
    struct dfa *dfa = NULL;
    enum error_code code = ERROR_NONE;
    size_t index, max;
    if (!texts)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the choice");
    else if (!n || n > LIMIT_GRAMMAR_CHOICES)
        code = error_set(err, ERROR_INVALID, "a choice is an array of 1 to %d texts",
                         LIMIT_GRAMMAR_CHOICES);
    yyjson_arr_foreach(list, index, max, value)
    {
        if (!code && !yyjson_get_len(value))
            code = error_set(err, ERROR_INVALID, "%zu: a choice must be a text that is not empty",
                             index);
        if (!code)
            texts[index] = (struct dfa_text){yyjson_get_str(value), yyjson_get_len(value)};
        if (!code && !yyjson_is_str(value))
            code = error_set(err, ERROR_INVALID, "%zu: a choice must be a text", index);
    }
    if (!code)
        code = dfa_of_texts(texts, (uint32_t)n, &dfa, err);
    if (!code)
        compile_dfa(program, dfa);
    dfa_free(dfa);
    mem_free(texts);
    yyjson_doc_free(doc);
    return code;
}

enum error_code grammar_compile(const struct grammar_source *source, struct grammar **out,
                                struct error *err)
{
    if (source->size > LIMIT_GRAMMAR_BYTES)
        return error_set(err, ERROR_INVALID, "a grammar of %zu bytes (at most %d)", source->size,
                         LIMIT_GRAMMAR_BYTES);
    struct grammar *program = mem_new(sizeof *program);
    if (!program)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a grammar");
    enum error_code code = ERROR_NONE;
    switch (source->kind) {
    case GRAMMAR_JSON_OBJECT:
    case GRAMMAR_JSON_SCHEMA:
        code = schema_compile(source, program, err);
        break;
    case GRAMMAR_REGEX:
        code = compile_regex(source, program, err);
        break;
    case GRAMMAR_CHOICE:
        code = compile_choice(source, program, err);
        break;
    case GRAMMAR_GBNF:
        code = gbnf_compile(source->text, source->size, program, err);
        break;
    case GRAMMAR_CALLS:
        code = calls_compile(source, program, err);
        break;
    case GRAMMAR_NONE:
        code = error_set(err, ERROR_INVALID, "no grammar");
    }
    if (!code)
        code = program_finish(program, err);
    if (code) {
        grammar_free(program);
        return code;
    }
    *out = program;
    return ERROR_NONE;
}
