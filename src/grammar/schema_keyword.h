/* Keywords: what each adds to a branch where it holds, and the forks in which it does not. */
#pragma once

#include "grammar/schema.h"

struct schema_keyword {
    const char *name;
    /* What holds is added to the branch. */
    void (*hold)(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                 const struct schema_keyword *keyword, uint32_t scope);
    /* Forks of the branch in which it does not hold are run; NULL: it cannot be negated. */
    void (*fail)(struct schema *schema, const struct schema_branch *branch, yyjson_mut_val *owner,
                 const struct schema_keyword *keyword);
    enum schema_fact_kind fact;
    unsigned types, n;
};

/* Of the keyword table's parts. */
yyjson_mut_val *schema_keyword_value(yyjson_mut_val *owner, const struct schema_keyword *keyword);
bool schema_keyword_u32(struct schema *schema, yyjson_mut_val *owner, const char *name,
                        uint32_t *out);
/* A fork that has one fact more, of values of these types only. */
void schema_keyword_fork(struct schema *schema, const struct schema_branch *branch, unsigned types,
                         struct schema_fact fact);

/* schema_parts.c: keywords of arrays and objects */
void schema_required_hold(struct schema *schema, struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword,
                          uint32_t scope);
void schema_required_fail(struct schema *schema, const struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword);
void schema_layer_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                       const struct schema_keyword *keyword, uint32_t scope);
void schema_properties_fail(struct schema *schema, const struct schema_branch *branch,
                            yyjson_mut_val *owner, const struct schema_keyword *keyword);
void schema_prefix_fail(struct schema *schema, const struct schema_branch *branch,
                        yyjson_mut_val *owner, const struct schema_keyword *keyword);
void schema_items_fail(struct schema *schema, const struct schema_branch *branch,
                       yyjson_mut_val *owner, const struct schema_keyword *keyword);
void schema_contains_hold(struct schema *schema, struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword,
                          uint32_t scope);
void schema_contains_fail(struct schema *schema, const struct schema_branch *branch,
                          yyjson_mut_val *owner, const struct schema_keyword *keyword);
void schema_literal_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                         const struct schema_keyword *keyword, uint32_t scope);
void schema_unique_hold(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *owner,
                        const struct schema_keyword *keyword, uint32_t scope);
void schema_unique_fail(struct schema *schema, const struct schema_branch *branch,
                        yyjson_mut_val *owner, const struct schema_keyword *keyword);
