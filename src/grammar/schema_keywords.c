/* What each keyword says, and what its failing says. */
#include "grammar/schema_keyword.h"

#include <stdio.h>
#include <string.h>

yyjson_mut_val *schema_keyword_value(yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    return yyjson_mut_obj_get(owner, keyword->name);
}

bool schema_keyword_u32(struct schema *schema, yyjson_mut_val *owner, const char *name,
                        uint32_t *out)
{
    struct decimal value;
    if (!schema_decimal(schema, owner, name, yyjson_mut_obj_get(owner, name), &value))
        return false;
    if (!decimal_as_u32(&value, out))
        schema_refuse(schema, ERROR_INVALID, owner, name, "must be a whole number from 0 on");
    return !schema->code;
}

/* A fork that has one fact more, of values of these types only. */
void schema_keyword_fork(struct schema *schema, const struct schema_branch *branch, unsigned types,
                         struct schema_fact fact)
{
    struct schema_branch fork;
    if (schema->code || !schema_copy(schema, branch, &fork))
        return;
    fork.types &= types;
    schema_add_fact(schema, &fork, fact);
    schema_run(schema, &fork);
}

static void keyword_fork_wish(struct schema *schema, const struct schema_branch *branch,
                              struct schema_wish wish)
{
    struct schema_branch fork;
    if (schema->code || !schema_copy(schema, branch, &fork))
        return;
    schema_add_wish(schema, &fork, wish);
    schema_run(schema, &fork);
}

/* ---- types and values ---- */

static void type_add(const char *name, unsigned *types, bool *is_integer, bool *is_known)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    static const unsigned bits[] = {
        TYPE_NULL, TYPE_TRUE | TYPE_FALSE, TYPE_NUMBER, TYPE_STRING, TYPE_ARRAY, TYPE_OBJECT};
    *is_known = name && strcmp(name, "integer") == 0;
    *is_integer |= *is_known;
    for (size_t i = 0; name && i < sizeof bits / sizeof *bits; i++) {
        if (strcmp(names[i], name) == 0) {
            *types |= bits[i];
            *is_known = true;
        }
    }
}

/* The types; *is_integer: numbers only where they are whole. */
static unsigned type_read(struct schema *schema, yyjson_mut_val *owner, bool *is_integer)
{
    yyjson_mut_val *type = yyjson_mut_obj_get(owner, "type"), *each;
    unsigned types = 0;
    size_t index, max;
    bool is_known = yyjson_mut_is_arr(type);
    *is_integer = false;
    if (is_known) {
        yyjson_mut_arr_foreach(type, index, max, each)
        {
            if (is_known)
                type_add(yyjson_mut_get_str(each), &types, is_integer, &is_known);
        }
    } else {
        type_add(yyjson_mut_get_str(type), &types, is_integer, &is_known);
    }
    if (!is_known)
        schema_refuse(schema, ERROR_INVALID, owner, "type", "is no type of JSON's");
    *is_integer &= !(types & TYPE_NUMBER);
    return types;
}

static void type_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                      const struct schema_keyword *keyword, uint32_t scope)
{
    bool is_integer;
    const unsigned types = type_read(schema, owner, &is_integer);
    branch->types &= types | (is_integer ? TYPE_NUMBER : 0);
    if (is_integer)
        schema_add_fact(schema, branch,
                        (struct schema_fact){.kind = keyword->fact, .scope = scope});
}

static void type_fail(struct schema *schema, const struct schema_branch *branch,
                      yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    bool is_integer;
    const unsigned types = type_read(schema, owner, &is_integer);
    struct schema_fact fact = {.kind = keyword->fact, .is_negated = true};
    if (!is_integer)
        fact = (struct schema_fact){.kind = FACT_LENGTH_MIN};
    schema_keyword_fork(schema, branch, TYPE_ALL & ~types, fact);
}

/* Arrays and objects among the values become schemas of their own, all others one more. */
static void values_want(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *list,
                        bool is_list, uint32_t scope)
{
    yyjson_mut_doc *doc = schema->doc;
    yyjson_mut_val *any = yyjson_mut_arr(doc), *simple = yyjson_mut_arr(doc);
    yyjson_mut_val *rest = yyjson_mut_obj(doc);
    bool is_made = yyjson_mut_obj_add(rest, yyjson_mut_str(doc, "enum"), simple) &&
                   yyjson_mut_arr_append(any, rest);
    for (size_t i = 0, n = is_list ? yyjson_mut_arr_size(list) : 1; is_made && i < n; i++) {
        yyjson_mut_val *each = is_list ? yyjson_mut_arr_get(list, i) : list;
        const bool is_large = schema_types_of(each) & (TYPE_ARRAY | TYPE_OBJECT);
        is_made = is_large ? yyjson_mut_arr_append(any, schema_constant(schema, each))
                           : yyjson_mut_arr_append(simple, yyjson_mut_val_mut_copy(doc, each));
    }
    if (!is_made)
        schema_no_memory(schema);
    schema_add_wish(schema, branch,
                    (struct schema_wish){.kind = WISH_ANY, .value = any, .scope = scope});
}

/* const and enum: `list` is the value itself or an array of them. Texts and numbers are facts;
 * arrays and objects become schemas. */
static void values_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                        const struct schema_keyword *keyword, uint32_t scope)
{
    yyjson_mut_val *list = schema_keyword_value(owner, keyword), *each;
    const bool is_list = keyword->n;
    unsigned types = 0;
    size_t index, n = is_list ? yyjson_mut_arr_size(list) : 1;
    if (is_list && !yyjson_mut_is_arr(list)) {
        schema_refuse(schema, ERROR_INVALID, owner, keyword->name, "must be an array");
        return;
    }
    for (index = 0; index < n; index++) {
        each = is_list ? yyjson_mut_arr_get(list, index) : list;
        types |= schema_types_of(each);
    }
    branch->types &= types;
    if (branch->types & (TYPE_ARRAY | TYPE_OBJECT)) {
        values_want(schema, branch, list, is_list, scope);
        return;
    }
    schema_add_fact(
        schema, branch,
        (struct schema_fact){.kind = FACT_TEXTS, .owner = owner, .value = list, .n = is_list});
    schema_add_fact(
        schema, branch,
        (struct schema_fact){.kind = FACT_NUMBERS, .owner = owner, .value = list, .n = is_list});
}

static void values_fail(struct schema *schema, const struct schema_branch *branch,
                        yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    yyjson_mut_val *list = schema_keyword_value(owner, keyword), *each;
    const bool is_list = keyword->n;
    struct schema_branch fork;
    if (schema->code || !schema_copy(schema, branch, &fork))
        return;
    const size_t n = is_list ? yyjson_mut_arr_size(list) : 1;
    for (size_t index = 0; index < n; index++) {
        each = is_list ? yyjson_mut_arr_get(list, index) : list;
        const unsigned type = schema_types_of(each);
        if (type & (TYPE_ARRAY | TYPE_OBJECT))
            schema_want(schema, &fork, schema_constant(schema, each), true, 0);
        else if (!(type & (TYPE_STRING | TYPE_NUMBER)))
            fork.types &= ~type;
    }
    struct schema_fact fact = {
        .kind = FACT_TEXTS, .is_negated = true, .owner = owner, .value = list, .n = is_list};
    schema_add_fact(schema, &fork, fact);
    fact.kind = FACT_NUMBERS;
    schema_add_fact(schema, &fork, fact);
    schema_run(schema, &fork);
}

/* ---- facts that are one value ---- */

static void fact_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                      const struct schema_keyword *keyword, uint32_t scope)
{
    schema_add_fact(schema, branch,
                    (struct schema_fact){.kind = keyword->fact,
                                         .owner = owner,
                                         .value = schema_keyword_value(owner, keyword),
                                         .n = keyword->n,
                                         .scope = scope});
}

static void fact_fail(struct schema *schema, const struct schema_branch *branch,
                      yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    const uint32_t opposite = (NUMBER_LESS | NUMBER_EQUAL | NUMBER_MORE) & ~keyword->n;
    const bool is_compared = keyword->fact == FACT_COMPARED;
    const char *format = yyjson_mut_get_str(schema_keyword_value(owner, keyword));
    if (keyword->fact == FACT_FORMAT && (schema->annotate || !format || !format_expression(format)))
        return; /* says nothing, so it never fails */
    schema_keyword_fork(schema, branch, keyword->types,
                        (struct schema_fact){.kind = keyword->fact,
                                             .owner = owner,
                                             .is_negated = !is_compared,
                                             .value = schema_keyword_value(owner, keyword),
                                             .n = is_compared ? opposite : 0});
}

static void count_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                       const struct schema_keyword *keyword, uint32_t scope)
{
    struct schema_fact fact = {.kind = keyword->fact, .owner = owner, .scope = scope};
    if (schema_keyword_u32(schema, owner, keyword->name, &fact.n))
        schema_add_fact(schema, branch, fact);
}

/* Below a minimum is a maximum of one less, and the other way round. */
static void count_fail(struct schema *schema, const struct schema_branch *branch,
                       yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    uint32_t n;
    if (!schema_keyword_u32(schema, owner, keyword->name, &n))
        return;
    const bool is_min = keyword->n;
    if (is_min && n == 0)
        return;
    const enum schema_fact_kind kind = is_min ? keyword->fact + 1 : keyword->fact - 1;
    schema_keyword_fork(
        schema, branch, keyword->types,
        (struct schema_fact){.kind = kind, .owner = owner, .n = is_min ? n - 1 : n + 1});
}

/* ---- schemas in place ---- */

static void place_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                       const struct schema_keyword *keyword, uint32_t scope)
{
    yyjson_mut_val *value = schema_keyword_value(owner, keyword), *each;
    size_t index, max;
    switch (keyword->n) {
    case 'r':
        value = schema_target(schema, owner, keyword->name);
        if (value)
            schema_want(schema, branch, value, false, scope);
        break;
    case 'n':
        schema_want(schema, branch, value, true, 0);
        break;
    case 'a':
        yyjson_mut_arr_foreach(value, index, max, each)
            schema_want(schema, branch, each, false, scope);
        break;
    case 'y':
    case 'o':
        schema_add_wish(schema, branch,
                        (struct schema_wish){.kind = keyword->n == 'y' ? WISH_ANY : WISH_ONE,
                                             .owner = owner,
                                             .value = value,
                                             .scope = scope});
        break;
    default:
        schema_add_wish(schema, branch,
                        (struct schema_wish){.kind = WISH_IF, .owner = owner, .scope = scope});
    }
}

static void place_fail(struct schema *schema, const struct schema_branch *branch,
                       yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    yyjson_mut_val *value = schema_keyword_value(owner, keyword), *each;
    struct schema_branch fork;
    size_t index, max;
    switch (keyword->n) {
    case 'a':
        keyword_fork_wish(
            schema, branch,
            (struct schema_wish){.kind = WISH_NOT_ALL, .owner = owner, .value = value});
        return;
    case 'o':
        keyword_fork_wish(
            schema, branch,
            (struct schema_wish){.kind = WISH_NOT_ONE, .owner = owner, .value = value});
        return;
    case 'i':
        keyword_fork_wish(schema, branch,
                          (struct schema_wish){.kind = WISH_NOT_IF, .owner = owner});
        return;
    }
    if (keyword->n == 'r')
        value = schema_target(schema, owner, keyword->name);
    if (schema->code || !schema_copy(schema, branch, &fork))
        return;
    if (keyword->n == 'y') {
        yyjson_mut_arr_foreach(value, index, max, each) schema_want(schema, &fork, each, true, 0);
    } else {
        schema_want(schema, &fork, value, keyword->n == 'r', 0);
    }
    schema_run(schema, &fork);
}

static void dependent_hold(struct schema *schema, struct schema_branch *branch,
                           yyjson_mut_val *owner, const struct schema_keyword *keyword,
                           uint32_t scope)
{
    yyjson_mut_val *key, *value;
    size_t index, max;
    yyjson_mut_obj_foreach(schema_keyword_value(owner, keyword), index, max, key, value)
        schema_add_wish(
            schema, branch,
            (struct schema_wish){.kind = keyword->n ? WISH_DEPENDENT_SCHEMA : WISH_DEPENDENT_NAMES,
                                 .owner = owner,
                                 .name = key,
                                 .value = value,
                                 .scope = scope});
}

static void refused_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                         const struct schema_keyword *keyword, uint32_t scope)
{
    (void)branch;
    (void)scope;
    schema_refuse(schema, ERROR_UNSUPPORTED, owner, keyword->name,
                  "is not supported: write it as draft 2020-12 has it");
}

static const struct schema_keyword keywords[] = {
    {"type", type_hold, type_fail, FACT_INTEGER, TYPE_ALL, 0},
    {"const", values_hold, values_fail, FACT_TEXTS, TYPE_ALL, 0},
    {"enum", values_hold, values_fail, FACT_TEXTS, TYPE_ALL, 1},
    {"minimum", fact_hold, fact_fail, FACT_COMPARED, TYPE_NUMBER, NUMBER_EQUAL | NUMBER_MORE},
    {"exclusiveMinimum", fact_hold, fact_fail, FACT_COMPARED, TYPE_NUMBER, NUMBER_MORE},
    {"maximum", fact_hold, fact_fail, FACT_COMPARED, TYPE_NUMBER, NUMBER_EQUAL | NUMBER_LESS},
    {"exclusiveMaximum", fact_hold, fact_fail, FACT_COMPARED, TYPE_NUMBER, NUMBER_LESS},
    {"multipleOf", fact_hold, fact_fail, FACT_MULTIPLE, TYPE_NUMBER, 0},
    {"pattern", fact_hold, fact_fail, FACT_PATTERN, TYPE_STRING, 0},
    {"format", fact_hold, fact_fail, FACT_FORMAT, TYPE_STRING, 0},
    {"minLength", count_hold, count_fail, FACT_LENGTH_MIN, TYPE_STRING, 1},
    {"maxLength", count_hold, count_fail, FACT_LENGTH_MAX, TYPE_STRING, 0},
    {"minItems", count_hold, count_fail, FACT_ITEMS_MIN, TYPE_ARRAY, 1},
    {"maxItems", count_hold, count_fail, FACT_ITEMS_MAX, TYPE_ARRAY, 0},
    {"prefixItems", schema_layer_hold, schema_prefix_fail, FACT_ITEMS, TYPE_ARRAY, 0},
    {"items", schema_layer_hold, schema_items_fail, FACT_ITEMS, TYPE_ARRAY, 0},
    {"contains", schema_contains_hold, schema_contains_fail, FACT_CONTAINS, TYPE_ARRAY, 0},
    {"uniqueItems", schema_unique_hold, schema_unique_fail, FACT_ITEMS, TYPE_ARRAY, 0},
    {"minProperties", count_hold, count_fail, FACT_MEMBERS_MIN, TYPE_OBJECT, 1},
    {"maxProperties", count_hold, count_fail, FACT_MEMBERS_MAX, TYPE_OBJECT, 0},
    {"required", schema_required_hold, schema_required_fail, FACT_REQUIRED, TYPE_OBJECT, 0},
    {"properties", schema_layer_hold, schema_properties_fail, FACT_LAYER, TYPE_OBJECT, 0},
    {"patternProperties", schema_layer_hold, NULL, FACT_LAYER, TYPE_OBJECT, 0},
    {"additionalProperties", schema_layer_hold, NULL, FACT_LAYER, TYPE_OBJECT, 0},
    {"propertyNames", schema_literal_hold, NULL, FACT_NAMES, TYPE_OBJECT, 0},
    {"unevaluatedProperties", schema_literal_hold, NULL, FACT_REST_MEMBERS, TYPE_OBJECT, 0},
    {"unevaluatedItems", schema_literal_hold, NULL, FACT_REST_ITEMS, TYPE_ARRAY, 0},
    {"dependentRequired", dependent_hold, NULL, FACT_REQUIRED, TYPE_OBJECT, 0},
    {"dependentSchemas", dependent_hold, NULL, FACT_REQUIRED, TYPE_OBJECT, 1},
    {"$ref", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'r'},
    {"$dynamicRef", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'r'},
    {"not", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'n'},
    {"allOf", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'a'},
    {"anyOf", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'y'},
    {"oneOf", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'o'},
    {"if", place_hold, place_fail, FACT_ITEM, TYPE_ALL, 'i'},
    {"dependencies", refused_hold, NULL, FACT_ITEM, TYPE_ALL, 0},
    {"additionalItems", refused_hold, NULL, FACT_ITEM, TYPE_ALL, 0},
    {"$recursiveRef", refused_hold, NULL, FACT_ITEM, TYPE_ALL, 0},
};
enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

/* What the schema finds unevaluated needs a scope of its own. */
static uint32_t keywords_scope(struct schema *schema, yyjson_mut_val *value, uint32_t scope)
{
    if (!yyjson_mut_obj_get(value, "unevaluatedProperties") &&
        !yyjson_mut_obj_get(value, "unevaluatedItems"))
        return scope;
    if (!SCHEMA_ROOM(schema, schema, scopes, schema->n_scopes + 1))
        return scope;
    schema->scopes[schema->n_scopes++] = (struct schema_scope){scope};
    return schema->n_scopes;
}

/* Applicators of wrong shape are refused here, so that all readers may trust them. */
static bool keyword_is_sound(struct schema *schema, yyjson_mut_val *owner,
                             const struct schema_keyword *keyword)
{
    yyjson_mut_val *value = schema_keyword_value(owner, keyword);
    const bool is_list = keyword->hold == place_hold && strchr("ayo", (int)keyword->n);
    const bool is_map =
        keyword->hold == dependent_hold || (keyword->fact == FACT_LAYER && keyword->name[0] == 'p');
    if (is_list && (!yyjson_mut_is_arr(value) || !yyjson_mut_arr_size(value)))
        schema_refuse(schema, ERROR_INVALID, owner, keyword->name, "must be an array of schemas");
    if (is_map && !yyjson_mut_is_obj(value))
        schema_refuse(schema, ERROR_INVALID, owner, keyword->name, "must be an object");
    if (strcmp(keyword->name, "prefixItems") == 0 && !yyjson_mut_is_arr(value))
        schema_refuse(schema, ERROR_INVALID, owner, keyword->name, "must be an array of schemas");
    if (strcmp(keyword->name, "items") == 0 && yyjson_mut_is_arr(value))
        schema_refuse(schema, ERROR_UNSUPPORTED, owner, keyword->name,
                      "as an array is not draft 2020-12: write prefixItems");
    return !schema->code;
}

/* In draft-07 a reference stands alone, whatever is beside it. */
static bool keyword_applies(const struct schema *schema, yyjson_mut_val *value,
                            const struct schema_keyword *keyword)
{
    const bool stands_alone = schema->is_draft_07 && yyjson_mut_obj_get(value, "$ref");
    return schema_keyword_value(value, keyword) && (!stands_alone || keyword->n == 'r');
}

void schema_expand_keywords(struct schema *schema, struct schema_branch *branch,
                            yyjson_mut_val *value, uint32_t scope)
{
    scope = keywords_scope(schema, value, scope);
    for (size_t i = 0; !schema->code && i < N_KEYWORDS; i++) {
        if (keyword_applies(schema, value, &keywords[i]) &&
            keyword_is_sound(schema, value, &keywords[i]))
            keywords[i].hold(schema, branch, value, &keywords[i], scope);
    }
}

void schema_expand_negated(struct schema *schema, const struct schema_branch *branch,
                           yyjson_mut_val *value)
{
    for (size_t i = 0; !schema->code && i < N_KEYWORDS; i++) {
        if (!keyword_applies(schema, value, &keywords[i]) ||
            !keyword_is_sound(schema, value, &keywords[i]))
            continue;
        if (keywords[i].fail)
            keywords[i].fail(schema, branch, value, &keywords[i]);
        else
            schema_refuse(schema, ERROR_UNSUPPORTED, value, keywords[i].name,
                          "cannot be negated, which `not`, `oneOf` or `if` asks for here");
    }
}
