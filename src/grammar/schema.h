/* From a JSON schema to a program.
 *
 * A place of a document is under a set of literals: schemas that hold there, and schemas that must
 * not. The set is expanded to branches: alternatives that contain no applicator any more, only a
 * set of types and facts about each type ("at most 5 long", "member a is under S"). A branch is
 * then written as nodes; members and items are under sets of their own, each of which becomes one
 * rule, made once. So schemas that refer to themselves end.
 *
 * Sets of strings and numbers are automata, so that what must hold and what must not are met
 * exactly. What this cannot express is refused with the path of its keyword.
 *
 * A scope is a schema that says what the unevaluated must be: facts know in which scopes they were
 * found, and so what they evaluate. */
#pragma once

#include "grammar/encode.h"
#include "grammar/number.h"

#include <yyjson.h>

enum schema_types {
    TYPE_NULL = 1,
    TYPE_TRUE = 2,
    TYPE_FALSE = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127,
};

enum schema_fact_kind {
    FACT_COMPARED, /* number stands in one of the relations `n` to the value */
    FACT_MULTIPLE, /* of the value */
    FACT_INTEGER,
    FACT_NUMBERS, /* one of the value's: itself, or an array's elements */
    FACT_PATTERN,
    FACT_FORMAT,
    FACT_TEXTS,      /* one of the value's */
    FACT_LENGTH_MIN, /* n */
    FACT_LENGTH_MAX,
    FACT_ITEMS,    /* the owner's prefixItems and items */
    FACT_ITEM,     /* item n is under the literal */
    FACT_CONTAINS, /* n to n_max items are under the literal */
    FACT_ITEMS_MIN,
    FACT_ITEMS_MAX,
    FACT_LAYER,    /* the owner's properties, patternProperties and additionalProperties */
    FACT_MEMBER,   /* member `name` is under the literal, if it is there */
    FACT_REQUIRED, /* member `name` is there */
    FACT_NAMES,    /* each name is under the literal */
    FACT_MEMBERS_MIN,
    FACT_MEMBERS_MAX,
    FACT_REST_MEMBERS, /* members that scope `n` does not evaluate are under the literal */
    FACT_REST_ITEMS,
};

struct schema_fact {
    enum schema_fact_kind kind;
    bool is_negated;
    yyjson_mut_val *owner, *value, *name;
    uint32_t n, n_max, literal, scope;
};

enum wish_kind {
    WISH_LITERAL, /* literal `n` */
    WISH_ANY,     /* one of the array's; WISH_NONE: none of them */
    WISH_ONE,
    WISH_NOT_ONE,
    WISH_NOT_ALL,
    WISH_IF,
    WISH_NOT_IF,
    WISH_NOT_KEYWORDS,     /* the owner's keywords do not all hold */
    WISH_DEPENDENT_NAMES,  /* dependentRequired's member `name` */
    WISH_DEPENDENT_SCHEMA, /* the same of dependentSchemas */
};

struct schema_wish {
    enum wish_kind kind;
    yyjson_mut_val *owner, *value, *name;
    uint32_t n, scope;
};

struct schema_branch {
    unsigned types;
    struct schema_fact *facts;
    struct schema_wish *wishes;
    uint32_t *literals; /* that were expanded, with their scopes */
    uint32_t n_facts, facts_room, n_wishes, wishes_room, n_literals, literals_room;
};

struct schema_scope {
    uint32_t parent; /* + 1 */
};

struct schema_resource {
    char *uri;
    yyjson_mut_val *root;
};

struct schema_anchor {
    uint32_t resource;
    bool is_dynamic;
    yyjson_mut_val *name, *schema;
};

struct schema_reference { /* a schema with $ref or $dynamicRef, and where it stands */
    yyjson_mut_val *schema;
    uint32_t resource;
};

struct schema {
    struct grammar *program;
    struct encoder encoder;
    yyjson_mut_doc *doc;
    bool annotate, is_draft_07;
    struct error *err;
    enum error_code code;
    uint32_t ws, any, string; /* rules */

    struct schema_resource *resources;
    struct schema_anchor *anchors;
    struct schema_reference *references;
    uint32_t n_resources, resources_room, n_anchors, anchors_room, n_references, references_room;

    struct word_table values; /* schemas by address */
    yyjson_mut_val **value_of;
    uint32_t value_of_room;
    struct word_table sets; /* of literals: a rule each */
    uint32_t *set_rules, set_rules_room;
    struct schema_scope *scopes;
    uint32_t n_scopes, scopes_room;

    struct schema_branch *branches; /* of the set at work */
    uint32_t n_branches, branches_room;
    uint64_t work;
};

/* Keeps the first failure: "#/properties/a/pattern: …". `keyword` may be NULL. */
void schema_refuse(struct schema *schema, enum error_code code, yyjson_mut_val *owner,
                   const char *keyword, const char *why);
void schema_no_memory(struct schema *schema);
#define SCHEMA_ROOM(schema, holder, array, n)                                                      \
    schema_room(schema, (void **)&(holder)->array, &(holder)->array##_room, n,                     \
                sizeof *(holder)->array)
bool schema_room(struct schema *schema, void **array, uint32_t *room, uint32_t n, size_t size);

/* schema_draft_07.c: draft-07's keywords that have other names today. */
void schema_modernise(struct schema *schema, yyjson_mut_val *value, bool is_schema, unsigned depth);

/* schema_refs.c */
void schema_find_resources(struct schema *schema);
void schema_refs_deinit(struct schema *schema);
yyjson_mut_val *schema_target(struct schema *schema, yyjson_mut_val *owner, const char *keyword);

/* A literal: the schema's number twice, + 1 where it must not hold. */
uint32_t schema_literal(struct schema *schema, yyjson_mut_val *value, bool is_negated);
/* The rule of a set of literals (sorted and made unique here), made later if it is new. */
uint32_t schema_rule(struct schema *schema, uint32_t *literals, uint32_t n);
yyjson_mut_val *schema_constant(struct schema *schema, yyjson_mut_val *value);

/* schema_branch.c, schema_keywords.c: the set's branches, to schema->branches */
void schema_expand(struct schema *schema, const uint32_t *literals, uint32_t n);
void schema_expand_keywords(struct schema *schema, struct schema_branch *branch,
                            yyjson_mut_val *value, uint32_t scope);
/* One fork for each way in which the schema's keywords fail. */
void schema_expand_negated(struct schema *schema, const struct schema_branch *branch,
                           yyjson_mut_val *value);
void schema_run(struct schema *schema, struct schema_branch *branch); /* ends the branch */
bool schema_copy(struct schema *schema, const struct schema_branch *from, struct schema_branch *to);
void schema_branch_deinit(struct schema_branch *branch);
void schema_add_fact(struct schema *schema, struct schema_branch *branch, struct schema_fact fact);
void schema_add_wish(struct schema *schema, struct schema_branch *branch, struct schema_wish wish);
void schema_want(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *value,
                 bool is_negated, uint32_t scope);
bool schema_disjoint(struct schema *schema, yyjson_mut_val *a, yyjson_mut_val *b, unsigned depth);
unsigned schema_types_of(yyjson_mut_val *value);

/* A branch's part as nodes that go on at `then`; an entry. */
uint32_t schema_write_number(struct schema *schema, const struct schema_branch *branch,
                             uint32_t then);
uint32_t schema_write_string(struct schema *schema, const struct schema_branch *branch,
                             uint32_t then);
uint32_t schema_write_array(struct schema *schema, const struct schema_branch *branch,
                            uint32_t then);
uint32_t schema_write_object(struct schema *schema, const struct schema_branch *branch,
                             uint32_t then);
/* The strings of a branch; NULL: any (then the lengths hold). The caller frees. */
struct dfa *schema_strings(struct schema *schema, const struct schema_branch *branch,
                           bool with_lengths, uint32_t *n_min, uint32_t *n_max);
bool schema_decimal(struct schema *schema, yyjson_mut_val *owner, const char *keyword,
                    yyjson_mut_val *value, struct decimal *out);
struct dfa *schema_pattern(struct schema *schema, yyjson_mut_val *owner, const char *keyword,
                           const char *text, size_t size);
bool schema_in_scope(const struct schema *schema, uint32_t scope, uint32_t wanted);

/* json.c: JSON without a schema */
void json_rules(struct schema *schema);
uint32_t json_ws(struct schema *schema, uint32_t then);
uint32_t json_string(struct schema *schema, uint32_t n_min, uint32_t n_max, uint32_t then);
uint32_t json_any_object(struct schema *schema, uint32_t then);

/* format.c: the expression of a format, NULL: not known. */
const char *format_expression(const char *name);
