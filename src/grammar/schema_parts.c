/* Keywords of arrays and objects. */
#include "grammar/schema_keyword.h"

#include <string.h>

void schema_required_hold(struct schema *schema, struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword,
                          uint32_t scope)
{
    yyjson_mut_val *list = schema_keyword_value(owner, keyword), *each;
    size_t index, max;
    (void)scope;
    if (!yyjson_mut_is_arr(list)) {
        schema_refuse(schema, ERROR_INVALID, owner, keyword->name, "must be an array of texts");
        return;
    }
    yyjson_mut_arr_foreach(list, index, max, each)
    {
        if (!yyjson_mut_is_str(each))
            schema_refuse(schema, ERROR_INVALID, owner, keyword->name, "must be an array of texts");
        schema_add_fact(schema, branch, (struct schema_fact){.kind = FACT_REQUIRED, .name = each});
    }
}

void schema_required_fail(struct schema *schema, const struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    yyjson_mut_val *list = schema_keyword_value(owner, keyword), *each;
    size_t index, max;
    const uint32_t never = schema_literal(schema, yyjson_mut_false(schema->doc), false);
    if (!yyjson_mut_is_arr(list))
        return;
    yyjson_mut_arr_foreach(list, index, max, each) schema_keyword_fork(
        schema, branch, TYPE_OBJECT,
        (struct schema_fact){.kind = FACT_MEMBER, .name = each, .literal = never});
}

static bool is_first_of(yyjson_mut_val *owner, const struct schema_keyword *keyword,
                        const char *const *names)
{
    for (; *names; names++) {
        if (yyjson_mut_obj_get(owner, *names))
            return strcmp(*names, keyword->name) == 0;
    }
    return false;
}

static const char *const layer_names[] = {"properties", "patternProperties", "additionalProperties",
                                          NULL};
static const char *const item_names[] = {"prefixItems", "items", NULL};

void schema_layer_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                       const struct schema_keyword *keyword, uint32_t scope)
{
    const bool is_items = keyword->fact == FACT_ITEMS;
    if (is_first_of(owner, keyword, is_items ? item_names : layer_names))
        schema_add_fact(
            schema, branch,
            (struct schema_fact){.kind = keyword->fact, .owner = owner, .scope = scope});
}

void schema_properties_fail(struct schema *schema, const struct schema_branch *branch,
                            yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    yyjson_mut_val *key, *value;
    size_t index, max;
    yyjson_mut_obj_foreach(schema_keyword_value(owner, keyword), index, max, key, value)
    {
        struct schema_branch fork;
        if (schema->code || !schema_copy(schema, branch, &fork))
            return;
        schema_add_fact(schema, &fork, (struct schema_fact){.kind = FACT_REQUIRED, .name = key});
        schema_keyword_fork(schema, &fork, TYPE_OBJECT,
                            (struct schema_fact){.kind = FACT_MEMBER,
                                                 .name = key,
                                                 .literal = schema_literal(schema, value, true)});
        schema_branch_deinit(&fork);
    }
}

void schema_prefix_fail(struct schema *schema, const struct schema_branch *branch,
                        yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    yyjson_mut_val *value;
    size_t index, max;
    yyjson_mut_arr_foreach(schema_keyword_value(owner, keyword), index, max, value)
    {
        struct schema_branch fork;
        if (schema->code || !schema_copy(schema, branch, &fork))
            return;
        schema_add_fact(schema, &fork,
                        (struct schema_fact){.kind = FACT_ITEMS_MIN, .n = (uint32_t)index + 1});
        schema_keyword_fork(schema, &fork, TYPE_ARRAY,
                            (struct schema_fact){.kind = FACT_ITEM,
                                                 .n = (uint32_t)index,
                                                 .literal = schema_literal(schema, value, true)});
        schema_branch_deinit(&fork);
    }
}

void schema_items_fail(struct schema *schema, const struct schema_branch *branch,
                       yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    if (yyjson_mut_obj_get(owner, "prefixItems")) {
        schema_refuse(schema, ERROR_UNSUPPORTED, owner, keyword->name,
                      "cannot be negated behind prefixItems");
        return;
    }
    schema_keyword_fork(
        schema, branch, TYPE_ARRAY,
        (struct schema_fact){
            .kind = FACT_CONTAINS,
            .owner = owner,
            .n = 1,
            .n_max = GRAMMAR_MANY,
            .literal = schema_literal(schema, schema_keyword_value(owner, keyword), true)});
}

void schema_contains_hold(struct schema *schema, struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword,
                          uint32_t scope)
{
    struct schema_fact fact = {
        .kind = FACT_CONTAINS,
        .owner = owner,
        .n = 1,
        .n_max = GRAMMAR_MANY,
        .scope = scope,
        .literal = schema_literal(schema, schema_keyword_value(owner, keyword), false)};
    if (yyjson_mut_obj_get(owner, "minContains") &&
        !schema_keyword_u32(schema, owner, "minContains", &fact.n))
        return;
    if (yyjson_mut_obj_get(owner, "maxContains") &&
        !schema_keyword_u32(schema, owner, "maxContains", &fact.n_max))
        return;
    schema_add_fact(schema, branch, fact);
}

void schema_contains_fail(struct schema *schema, const struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    struct schema_branch held = {0};
    schema_contains_hold(schema, &held, owner, keyword, 0);
    if (!schema->code) {
        struct schema_fact fact = held.facts[0];
        const uint32_t n_min = fact.n, n_max = fact.n_max;
        fact.n = 0;
        fact.n_max = n_min - 1;
        if (n_min)
            schema_keyword_fork(schema, branch, TYPE_ARRAY, fact);
        fact.n = n_max + 1;
        fact.n_max = GRAMMAR_MANY;
        if (n_max != GRAMMAR_MANY)
            schema_keyword_fork(schema, branch, TYPE_ARRAY, fact);
    }
    schema_branch_deinit(&held);
}

void schema_literal_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                         const struct schema_keyword *keyword, uint32_t scope)
{
    schema_add_fact(schema, branch,
                    (struct schema_fact){.kind = keyword->fact,
                                         .owner = owner,
                                         .n = scope,
                                         .scope = scope,
                                         .literal = schema_literal(
                                             schema, schema_keyword_value(owner, keyword), false)});
}

void schema_unique_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                        const struct schema_keyword *keyword, uint32_t scope)
{
    (void)scope;
    (void)branch;
    if (!yyjson_mut_is_false(schema_keyword_value(owner, keyword)))
        schema_refuse(schema, ERROR_UNSUPPORTED, owner, keyword->name,
                      "items that must differ are not supported");
}

void schema_unique_fail(struct schema *schema, const struct schema_branch *branch,
                        yyjson_mut_val *owner, const struct schema_keyword *keyword)
{
    schema_unique_hold(schema, NULL, owner, keyword, branch->n_wishes);
}
