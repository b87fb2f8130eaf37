#include "grammar/schema.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "grammar/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures, with their place ---- */

/* Writes the path of `wanted` behind the `size` bytes that stand in `path`. */
static bool schema_find_path(yyjson_mut_val *at, yyjson_mut_val *wanted, char *path, size_t size,
                             size_t room)
{
    yyjson_mut_val *key, *value;
    size_t index, max;
    path[size] = 0;
    if (at == wanted)
        return true;
    if (yyjson_mut_is_obj(at)) {
        yyjson_mut_obj_foreach(at, index, max, key, value)
        {
            const int n = snprintf(path + size, room - size, "/%s", yyjson_mut_get_str(key));
            const size_t next = n > 0 && size + (size_t)n < room ? size + (size_t)n : room - 1;
            if (schema_find_path(value, wanted, path, next, room))
                return true;
        }
    } else if (yyjson_mut_is_arr(at)) {
        yyjson_mut_arr_foreach(at, index, max, value)
        {
            const int n = snprintf(path + size, room - size, "/%zu", index);
            const size_t next = n > 0 && size + (size_t)n < room ? size + (size_t)n : room - 1;
            if (schema_find_path(value, wanted, path, next, room))
                return true;
        }
    }
    return false;
}

void schema_refuse(struct schema *schema, enum error_code code, yyjson_mut_val *owner,
                   const char *keyword, const char *why)
{
    char path[256] = "#";
    if (schema->code)
        return;
    if (owner &&
        !schema_find_path(yyjson_mut_doc_get_root(schema->doc), owner, path, 1, sizeof path))
        snprintf(path, sizeof path, "#");
    schema->code = error_set(schema->err, code, "%s%s%s: %s", path, keyword ? "/" : "",
                             keyword ? keyword : "", why);
}

void schema_no_memory(struct schema *schema)
{
    schema_refuse(schema, ERROR_NO_MEMORY, NULL, NULL, "not enough memory for the schema");
}

bool schema_room(struct schema *schema, void **array, uint32_t *room, uint32_t n, size_t size)
{
    if (schema->code)
        return false;
    if (n <= *room)
        return true;
    const uint32_t wanted = n * 2 + 8;
    void *resized = mem_resize(*array, wanted, size);
    if (!resized) {
        schema_no_memory(schema);
        return false;
    }
    *array = resized;
    *room = wanted;
    return true;
}

/* ---- literals and their rules ---- */

uint32_t schema_literal(struct schema *schema, yyjson_mut_val *value, bool is_negated)
{
    uint32_t words[2] = {0};
    /* `true` and `false` are many values in a document, and one here. */
    if (yyjson_mut_is_bool(value))
        words[0] = yyjson_mut_get_bool(value) ? 1 : 2;
    else
        memcpy(words, &value, sizeof value);
    const uint32_t number = word_table_add(&schema->values, words, 2, 1u << 24);
    if (number == WORD_TABLE_NONE) {
        schema_no_memory(schema);
        return 0;
    }
    if (!SCHEMA_ROOM(schema, schema, value_of, number + 1))
        return 0;
    schema->value_of[number] = value;
    return number * 2 + is_negated;
}

static int schema_literal_compare(const void *a, const void *b)
{
    const uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return (first > second) - (first < second);
}

uint32_t schema_rule(struct schema *schema, uint32_t *literals, uint32_t n)
{
    uint32_t kept = 0;
    if (n > 1)
        qsort(literals, n, sizeof *literals, schema_literal_compare);
    for (uint32_t i = 0; i < n; i++) {
        yyjson_mut_val *value = schema->value_of[literals[i] / 2];
        const bool is_always =
            yyjson_mut_is_bool(value) && yyjson_mut_get_bool(value) != (bool)(literals[i] & 1);
        const bool is_empty =
            yyjson_mut_is_obj(value) && !yyjson_mut_obj_size(value) && !(literals[i] & 1);
        if (!is_always && !is_empty && (!kept || literals[kept - 1] != literals[i]))
            literals[kept++] = literals[i];
    }
    if (!kept)
        return schema->any;
    const uint32_t before = schema->sets.count;
    const uint32_t number = word_table_add(&schema->sets, literals, kept, LIMIT_GRAMMAR_SHAPES);
    if (number == WORD_TABLE_NONE) {
        schema_refuse(schema, ERROR_BUSY, NULL, NULL, "too many places and meetings of schemas");
        return 0;
    }
    if (number < before)
        return schema->set_rules[number];
    if (!SCHEMA_ROOM(schema, schema, set_rules, number + 1))
        return 0;
    return schema->set_rules[number] = program_rule(schema->program);
}

/* An array or object as a schema that it alone satisfies. */
yyjson_mut_val *schema_constant(struct schema *schema, yyjson_mut_val *value)
{
    yyjson_mut_doc *doc = schema->doc;
    yyjson_mut_val *out = yyjson_mut_obj(doc), *key, *each, *element;
    const bool is_array = yyjson_mut_is_arr(value);
    yyjson_mut_val *list = yyjson_mut_arr(doc), *names = yyjson_mut_obj(doc);
    size_t index, max;
    bool is_made = out && list && names;
    if (is_array) {
        yyjson_mut_arr_foreach(value, index, max, each)
        {
            element = yyjson_mut_obj(doc);
            is_made = is_made &&
                      yyjson_mut_obj_add(element, yyjson_mut_str(doc, "const"),
                                         yyjson_mut_val_mut_copy(doc, each)) &&
                      yyjson_mut_arr_append(list, element);
        }
        char count[24];
        snprintf(count, sizeof count, "%zu", yyjson_mut_arr_size(value));
        is_made =
            is_made && yyjson_mut_obj_add_str(doc, out, "type", "array") &&
            yyjson_mut_obj_add_val(doc, out, "prefixItems", list) &&
            yyjson_mut_obj_add_bool(doc, out, "items", false) &&
            yyjson_mut_obj_add(out, yyjson_mut_str(doc, "minItems"), yyjson_mut_rawcpy(doc, count));
    } else {
        yyjson_mut_obj_foreach(value, index, max, key, each)
        {
            element = yyjson_mut_obj(doc);
            is_made = is_made &&
                      yyjson_mut_obj_add(element, yyjson_mut_str(doc, "const"),
                                         yyjson_mut_val_mut_copy(doc, each)) &&
                      yyjson_mut_obj_add(names, yyjson_mut_val_mut_copy(doc, key), element) &&
                      yyjson_mut_arr_append(list, yyjson_mut_val_mut_copy(doc, key));
        }
        is_made = is_made && yyjson_mut_obj_add_str(doc, out, "type", "object") &&
                  yyjson_mut_obj_add_val(doc, out, "properties", names) &&
                  yyjson_mut_obj_add_val(doc, out, "required", list) &&
                  yyjson_mut_obj_add_bool(doc, out, "additionalProperties", false);
    }
    if (!is_made)
        schema_no_memory(schema);
    return out;
}

/* ---- rules ---- */

static uint32_t schema_write_branch(struct schema *schema, const struct schema_branch *branch,
                                    uint32_t end)
{
    struct grammar *program = schema->program;
    uint32_t entries[8], n = 0;
    if (branch->types & TYPE_NULL)
        entries[n++] = program_text(program, "null", end);
    if (branch->types & TYPE_TRUE)
        entries[n++] = program_text(program, "true", end);
    if (branch->types & TYPE_FALSE)
        entries[n++] = program_text(program, "false", end);
    if (branch->types & TYPE_NUMBER)
        entries[n++] = schema_write_number(schema, branch, end);
    if (branch->types & TYPE_STRING)
        entries[n++] = schema_write_string(schema, branch, end);
    if (branch->types & TYPE_ARRAY)
        entries[n++] = schema_write_array(schema, branch, end);
    if (branch->types & TYPE_OBJECT)
        entries[n++] = schema_write_object(schema, branch, end);
    return n == 1 ? entries[0] : program_split(program, entries, n);
}

static void schema_write_set(struct schema *schema, uint32_t set)
{
    struct grammar *program = schema->program;
    size_t n;
    const uint32_t *words = word_table_get(&schema->sets, set, &n);
    uint32_t *literals = mem_new_array(n, sizeof *literals);
    if (!literals) {
        schema_no_memory(schema);
        return;
    }
    memcpy(literals, words, n * sizeof *literals);
    schema_expand(schema, literals, (uint32_t)n);
    mem_free(literals);
    const uint32_t end = program_return(program);
    const uint32_t n_branches = schema->n_branches;
    uint32_t *entries = mem_new_array((size_t)n_branches + 1, sizeof *entries);
    if (!entries)
        schema_no_memory(schema);
    for (uint32_t i = 0; i < n_branches && !schema->code; i++)
        entries[i] = schema_write_branch(schema, &schema->branches[i], end);
    if (!schema->code)
        program_set_rule(program, schema->set_rules[set],
                         n_branches == 1 ? entries[0]
                                         : program_split(program, entries, n_branches));
    for (uint32_t i = 0; i < n_branches; i++)
        schema_branch_deinit(&schema->branches[i]);
    schema->n_branches = 0;
    mem_free(entries);
}

static void schema_write(struct schema *schema, bool is_any_object)
{
    struct grammar *program = schema->program;
    program_node(program, NODE_SPLIT); /* node 0 leads nowhere */
    json_rules(schema);
    program->root = program_rule(program);
    const uint32_t end = program_return(program);
    uint32_t entry = 0;
    if (is_any_object) {
        entry = json_any_object(schema, end);
    } else {
        schema_find_resources(schema);
        uint32_t literal = schema_literal(schema, yyjson_mut_doc_get_root(schema->doc), false);
        entry = schema->code ? 0 : program_call(program, schema_rule(schema, &literal, 1), end);
    }
    program_set_rule(program, program->root, entry);
    for (uint32_t set = 0; set < schema->sets.count && !schema->code && !program->code; set++)
        schema_write_set(schema, set);
}

static void schema_deinit(struct schema *schema)
{
    for (uint32_t i = 0; i < schema->n_branches; i++)
        schema_branch_deinit(&schema->branches[i]);
    mem_free(schema->branches);
    mem_free(schema->scopes);
    mem_free(schema->set_rules);
    mem_free(schema->value_of);
    word_table_deinit(&schema->values);
    word_table_deinit(&schema->sets);
    schema_refs_deinit(schema);
    encoder_deinit(&schema->encoder);
    yyjson_mut_doc_free(schema->doc);
}

static void schema_check_dialect(struct schema *schema)
{
    static const char *const known[] = {"https://json-schema.org/draft/2020-12/schema",
                                        "https://json-schema.org/draft/2019-09/schema",
                                        "http://json-schema.org/draft-07/schema"};
    yyjson_mut_val *root = yyjson_mut_doc_get_root(schema->doc);
    yyjson_mut_val *dialect = yyjson_mut_is_obj(root) ? yyjson_mut_obj_get(root, "$schema") : NULL;
    const char *name = yyjson_mut_get_str(dialect);
    bool is_known = !dialect;
    schema->is_draft_07 = name && strncmp(name, known[2], strlen(known[2])) == 0;
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        is_known |= strncmp(name, known[i], strlen(known[i])) == 0 &&
                    strspn(name + strlen(known[i]), "#") == strlen(name + strlen(known[i]));
    if (!is_known)
        schema_refuse(schema, ERROR_UNSUPPORTED, root, "$schema",
                      "this dialect is not known: use draft 2020-12");
}

enum error_code schema_compile(const struct grammar_source *source, struct grammar *program,
                               struct error *err)
{
    struct schema schema = {.program = program, .annotate = source->annotate, .err = err};
    schema.encoder.program = program;
    const bool is_any_object = source->kind == GRAMMAR_JSON_OBJECT;
    yyjson_read_err why = {0};
    yyjson_doc *doc = yyjson_read_opts((char *)(is_any_object ? "{}" : source->text),
                                       is_any_object ? 2 : source->size, YYJSON_READ_NUMBER_AS_RAW,
                                       &json_memory, &why);
    if (!doc)
        return error_set(err, ERROR_INVALID, "#: the schema is no JSON: %s at byte %zu", why.msg,
                         why.pos);
    schema.doc = yyjson_doc_mut_copy(doc, &json_memory);
    yyjson_doc_free(doc);
    if (!schema.doc)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the schema");
    schema_check_dialect(&schema);
    if (!schema.code)
        schema_modernise(&schema, yyjson_mut_doc_get_root(schema.doc), schema.is_draft_07, 0);
    if (!schema.code)
        schema_write(&schema, is_any_object);
    schema_deinit(&schema);
    return schema.code;
}
