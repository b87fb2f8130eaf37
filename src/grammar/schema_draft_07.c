/* Draft-07 as 2020-12: an array of `items` is prefixItems, additionalItems then items, and
 * dependencies are dependentRequired and dependentSchemas. */
#include "grammar/schema.h"

#include <string.h>

static bool draft_07_add(struct schema *schema, yyjson_mut_val *value, const char *name,
                         yyjson_mut_val *added)
{
    return yyjson_mut_obj_put(value, yyjson_mut_str(schema->doc, name), added);
}

static void draft_07_items(struct schema *schema, yyjson_mut_val *value)
{
    yyjson_mut_val *items = yyjson_mut_obj_get(value, "items");
    yyjson_mut_val *rest = yyjson_mut_obj_remove_key(value, "additionalItems");
    if (!yyjson_mut_is_arr(items))
        return;
    items = yyjson_mut_obj_remove_key(value, "items");
    if (!draft_07_add(schema, value, "prefixItems", items) ||
        (rest && !draft_07_add(schema, value, "items", rest)))
        schema_no_memory(schema);
}

static void draft_07_dependencies(struct schema *schema, yyjson_mut_val *value)
{
    yyjson_mut_doc *doc = schema->doc;
    yyjson_mut_val *all = yyjson_mut_obj_remove_key(value, "dependencies"), *key, *each;
    yyjson_mut_val *names = yyjson_mut_obj(doc), *schemas = yyjson_mut_obj(doc);
    bool is_made = names && schemas;
    size_t index, max;
    yyjson_mut_obj_foreach(all, index, max, key, each)
    {
        is_made = is_made && yyjson_mut_obj_add(yyjson_mut_is_arr(each) ? names : schemas,
                                                yyjson_mut_val_mut_copy(doc, key),
                                                yyjson_mut_val_mut_copy(doc, each));
    }
    if (is_made && yyjson_mut_obj_size(names))
        is_made = draft_07_add(schema, value, "dependentRequired", names);
    if (is_made && yyjson_mut_obj_size(schemas))
        is_made = draft_07_add(schema, value, "dependentSchemas", schemas);
    if (!is_made)
        schema_no_memory(schema);
}

/* Whether the keyword's value maps names to schemas. */
static bool draft_07_is_map(const char *name)
{
    static const char *const maps[] = {"properties", "patternProperties", "definitions", "$defs",
                                       "dependentSchemas"};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        if (strcmp(maps[i], name) == 0)
            return true;
    }
    return false;
}

void schema_modernise(struct schema *schema, yyjson_mut_val *value, bool is_schema, unsigned depth)
{
    yyjson_mut_val *key, *each;
    size_t index, max;
    if (!schema->is_draft_07 || schema->code)
        return;
    if (depth > LIMIT_GRAMMAR_DEPTH) {
        schema_refuse(schema, ERROR_BUSY, value, NULL, "the schema is nested too deeply");
        return;
    }
    if (is_schema && yyjson_mut_is_obj(value)) {
        draft_07_items(schema, value);
        if (yyjson_mut_obj_get(value, "dependencies"))
            draft_07_dependencies(schema, value);
    }
    yyjson_mut_arr_foreach(value, index, max, each) schema_modernise(schema, each, true, depth + 1);
    yyjson_mut_obj_foreach(value, index, max, key, each)
    {
        const char *name = yyjson_mut_get_str(key);
        const bool is_value = strcmp(name, "enum") == 0 || strcmp(name, "const") == 0;
        if (!is_schema || !is_value)
            schema_modernise(schema, each, !is_schema || !draft_07_is_map(name), depth + 1);
    }
}
