/* Sets of literals to branches. A branch has wishes, which are taken one by one: a literal adds
 * facts and more wishes; a choice forks the branch. */
#include "base/mem.h"
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

enum { SCHEMA_WORK_MAX = 1 << 18, SCHEMA_SUBSETS_MAX = 8 };

void schema_branch_deinit(struct schema_branch *branch)
{
    mem_free(branch->facts);
    mem_free(branch->wishes);
    mem_free(branch->literals);
    *branch = (struct schema_branch){0};
}

static void *schema_duplicate(struct schema *schema, const void *array, uint32_t n, size_t size)
{
    void *copy = mem_new_array((size_t)n + 8, size);
    if (!copy)
        schema_no_memory(schema);
    else if (n)
        memcpy(copy, array, n * size);
    return copy;
}

bool schema_copy(struct schema *schema, const struct schema_branch *from, struct schema_branch *to)
{
    *to = *from;
    to->facts = schema_duplicate(schema, from->facts, from->n_facts, sizeof *to->facts);
    to->wishes = schema_duplicate(schema, from->wishes, from->n_wishes, sizeof *to->wishes);
    to->literals = schema_duplicate(schema, from->literals, from->n_literals, 4);
    to->facts_room = from->n_facts + 8;
    to->wishes_room = from->n_wishes + 8;
    to->literals_room = from->n_literals + 8;
    if (to->facts && to->wishes && to->literals)
        return true;
    schema_branch_deinit(to);
    return false;
}

void schema_add_fact(struct schema *schema, struct schema_branch *branch, struct schema_fact fact)
{
    if (SCHEMA_ROOM(schema, branch, facts, branch->n_facts + 1))
        branch->facts[branch->n_facts++] = fact;
}

void schema_add_wish(struct schema *schema, struct schema_branch *branch, struct schema_wish wish)
{
    if (SCHEMA_ROOM(schema, branch, wishes, branch->n_wishes + 1))
        branch->wishes[branch->n_wishes++] = wish;
}

void schema_want(struct schema *schema, struct schema_branch *branch, yyjson_mut_val *value,
                 bool is_negated, uint32_t scope)
{
    const uint32_t literal = schema_literal(schema, value, is_negated);
    schema_add_wish(
        schema, branch,
        (struct schema_wish){.kind = WISH_LITERAL, .value = value, .n = literal, .scope = scope});
}

bool schema_in_scope(const struct schema *schema, uint32_t scope, uint32_t wanted)
{
    for (; scope; scope = schema->scopes[scope - 1].parent) {
        if (scope == wanted)
            return true;
    }
    return false;
}

/* ---- choices ---- */

/* A fork in which the alternatives of `wanted` hold; where `excluded`, those of it do not. */
static void schema_fork(struct schema *schema, const struct schema_branch *branch,
                        const struct schema_wish *wish, uint64_t wanted, uint64_t excluded)
{
    struct schema_branch fork;
    if (schema->code || !schema_copy(schema, branch, &fork))
        return;
    yyjson_mut_val *value;
    size_t index, max;
    yyjson_mut_arr_foreach(wish->value, index, max, value)
    {
        if (index < 64 && wanted >> index & 1)
            schema_want(schema, &fork, value, false, wish->scope);
        if (index < 64 && excluded >> index & 1)
            schema_want(schema, &fork, value, true, 0);
    }
    schema_run(schema, &fork);
}

/* Where somebody asks what was evaluated, all that hold count: one fork for each set of them. */
static void schema_fork_subsets(struct schema *schema, const struct schema_branch *branch,
                                const struct schema_wish *wish, size_t n)
{
    if (n > SCHEMA_SUBSETS_MAX) {
        schema_refuse(schema, ERROR_BUSY, wish->owner, "anyOf",
                      "too many alternatives below an unevaluated keyword");
        return;
    }
    const uint64_t all = (UINT64_C(1) << n) - 1;
    for (uint64_t set = 1; set <= all; set++)
        schema_fork(schema, branch, wish, set, all & ~set);
}

static void schema_fork_one(struct schema *schema, const struct schema_branch *branch,
                            const struct schema_wish *wish)
{
    yyjson_mut_val *value;
    size_t index, max;
    yyjson_mut_arr_foreach(wish->value, index, max, value)
    {
        struct schema_branch fork;
        if (schema->code || !schema_copy(schema, branch, &fork))
            return;
        schema_want(schema, &fork, value, false, wish->scope);
        if (wish->kind == WISH_ONE) {
            yyjson_mut_val *other;
            size_t at, n;
            yyjson_mut_arr_foreach(wish->value, at, n, other)
            {
                if (at != index && !schema_disjoint(schema, value, other, 0))
                    schema_want(schema, &fork, other, true, 0);
            }
        } else if (wish->kind == WISH_NOT_ALL) {
            fork.n_wishes--;
            schema_want(schema, &fork, value, true, 0);
        }
        schema_run(schema, &fork);
    }
}

/* None holds, or two do. */
static void schema_fork_not_one(struct schema *schema, const struct schema_branch *branch,
                                const struct schema_wish *wish, size_t n)
{
    if (n > 16) {
        schema_refuse(schema, ERROR_BUSY, wish->owner, "oneOf", "too many alternatives to negate");
        return;
    }
    schema_fork(schema, branch, wish, 0, (UINT64_C(1) << n) - 1);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++)
            schema_fork(schema, branch, wish, UINT64_C(1) << i | UINT64_C(1) << k, 0);
    }
}

static void schema_fork_if(struct schema *schema, const struct schema_branch *branch,
                           const struct schema_wish *wish)
{
    for (int holds = 0; holds < 2; holds++) {
        struct schema_branch fork;
        yyjson_mut_val *then = yyjson_mut_obj_get(wish->owner, holds ? "then" : "else");
        const bool is_negated = wish->kind == WISH_NOT_IF;
        if (is_negated && !then)
            continue;
        if (schema->code || !schema_copy(schema, branch, &fork))
            return;
        schema_want(schema, &fork, yyjson_mut_obj_get(wish->owner, "if"), !holds,
                    holds && !is_negated ? wish->scope : 0);
        if (then)
            schema_want(schema, &fork, then, is_negated, is_negated ? 0 : wish->scope);
        schema_run(schema, &fork);
    }
}

static struct schema_fact schema_presence(struct schema *schema, const struct schema_wish *wish,
                                          bool is_there)
{
    if (is_there)
        return (struct schema_fact){.kind = FACT_REQUIRED, .name = wish->name};
    return (struct schema_fact){.kind = FACT_MEMBER,
                                .name = wish->name,
                                .literal =
                                    schema_literal(schema, yyjson_mut_false(schema->doc), false)};
}

/* The member is not there (or it is no object), or it is, and what depends on it holds. */
static void schema_fork_dependent(struct schema *schema, const struct schema_branch *branch,
                                  const struct schema_wish *wish)
{
    for (int is_there = 0; is_there < 2; is_there++) {
        struct schema_branch fork;
        if (schema->code || !schema_copy(schema, branch, &fork))
            return;
        schema_add_fact(schema, &fork, schema_presence(schema, wish, is_there));
        if (is_there) {
            fork.types &= TYPE_OBJECT;
            if (wish->kind == WISH_DEPENDENT_SCHEMA)
                schema_want(schema, &fork, wish->value, false, wish->scope);
        }
        yyjson_mut_val *name;
        size_t index, max;
        if (is_there && wish->kind == WISH_DEPENDENT_NAMES) {
            yyjson_mut_arr_foreach(wish->value, index, max, name) schema_add_fact(
                schema, &fork, (struct schema_fact){.kind = FACT_REQUIRED, .name = name});
        }
        schema_run(schema, &fork);
    }
}

static void schema_choose(struct schema *schema, struct schema_branch *branch,
                          const struct schema_wish *wish)
{
    const size_t n = yyjson_mut_arr_size(wish->value);
    switch (wish->kind) {
    case WISH_ANY:
        if (wish->scope && wish->owner) {
            schema_fork_subsets(schema, branch, wish, n);
            break;
        }
        schema_fork_one(schema, branch, wish);
        break;
    case WISH_ONE:
    case WISH_NOT_ALL:
        schema_fork_one(schema, branch, wish);
        break;
    case WISH_NOT_ONE:
        schema_fork_not_one(schema, branch, wish, n);
        break;
    case WISH_IF:
    case WISH_NOT_IF:
        schema_fork_if(schema, branch, wish);
        break;
    case WISH_NOT_KEYWORDS:
        schema_expand_negated(schema, branch, wish->owner);
        break;
    case WISH_DEPENDENT_NAMES:
    case WISH_DEPENDENT_SCHEMA:
        schema_fork_dependent(schema, branch, wish);
        break;
    case WISH_LITERAL:
        break;
    }
}

/* ---- literals ---- */

static bool schema_is_done(struct schema *schema, struct schema_branch *branch, uint32_t literal,
                           uint32_t scope)
{
    for (uint32_t i = 0; i < branch->n_literals; i += 2) {
        if (branch->literals[i] == literal && branch->literals[i + 1] == scope)
            return true;
    }
    if (SCHEMA_ROOM(schema, branch, literals, branch->n_literals + 2)) {
        branch->literals[branch->n_literals++] = literal;
        branch->literals[branch->n_literals++] = scope;
    }
    return false;
}

static void schema_take_literal(struct schema *schema, struct schema_branch *branch,
                                const struct schema_wish *wish)
{
    const bool is_negated = wish->n & 1;
    yyjson_mut_val *value = schema->value_of[wish->n / 2];
    if (schema_is_done(schema, branch, wish->n, wish->scope))
        return;
    if (schema_is_done(schema, branch, wish->n ^ 1, 0)) /* both it and its opposite */
        branch->types = 0;
    else
        branch->n_literals -= schema->code ? 0 : 2;
    if (yyjson_mut_is_bool(value)) {
        if (yyjson_mut_get_bool(value) == is_negated)
            branch->types = 0;
    } else if (!yyjson_mut_is_obj(value)) {
        schema_refuse(schema, ERROR_INVALID, value, NULL,
                      "must be a schema: an object or a boolean");
    } else if (is_negated) {
        schema_add_wish(schema, branch,
                        (struct schema_wish){.kind = WISH_NOT_KEYWORDS, .owner = value});
    } else {
        schema_expand_keywords(schema, branch, value, wish->scope);
    }
}

/* Literals first: the more is known, the fewer forks live. */
static bool schema_next_wish(struct schema_branch *branch, struct schema_wish *wish)
{
    if (!branch->n_wishes)
        return false;
    uint32_t at = branch->n_wishes - 1;
    for (uint32_t i = 0; i < branch->n_wishes; i++) {
        if (branch->wishes[i].kind == WISH_LITERAL)
            at = i;
    }
    *wish = branch->wishes[at];
    branch->wishes[at] = branch->wishes[--branch->n_wishes];
    return true;
}

void schema_run(struct schema *schema, struct schema_branch *branch)
{
    struct schema_wish wish;
    while (!schema->code && branch->types && schema_next_wish(branch, &wish)) {
        if (++schema->work > SCHEMA_WORK_MAX) {
            schema_refuse(schema, ERROR_BUSY, wish.owner, NULL,
                          "its alternatives are too many together");
        } else if (wish.kind == WISH_LITERAL) {
            schema_take_literal(schema, branch, &wish);
        } else {
            schema_choose(schema, branch, &wish);
            branch->types = 0; /* its forks go on */
        }
    }
    if (!schema->code && branch->types) {
        if (schema->n_branches == LIMIT_GRAMMAR_BRANCHES) {
            schema_refuse(schema, ERROR_BUSY, NULL, NULL, "a place has too many alternatives");
        } else if (SCHEMA_ROOM(schema, schema, branches, schema->n_branches + 1)) {
            schema->branches[schema->n_branches++] = *branch;
            return;
        }
    }
    schema_branch_deinit(branch);
}

void schema_expand(struct schema *schema, const uint32_t *literals, uint32_t n)
{
    struct schema_branch branch = {.types = TYPE_ALL};
    schema->n_branches = 0;
    for (uint32_t i = 0; i < n; i++)
        schema_add_wish(schema, &branch,
                        (struct schema_wish){.kind = WISH_LITERAL, .n = literals[i]});
    schema_run(schema, &branch);
}

/* ---- whether two schemas can hold at once, as far as their faces tell ---- */

unsigned schema_types_of(yyjson_mut_val *value)
{
    if (yyjson_mut_is_null(value))
        return TYPE_NULL;
    if (yyjson_mut_is_bool(value))
        return yyjson_mut_get_bool(value) ? TYPE_TRUE : TYPE_FALSE;
    return yyjson_mut_is_str(value)   ? TYPE_STRING
           : yyjson_mut_is_arr(value) ? TYPE_ARRAY
           : yyjson_mut_is_obj(value) ? TYPE_OBJECT
                                      : TYPE_NUMBER;
}

static unsigned schema_type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } all[] = {{"null", TYPE_NULL},     {"boolean", TYPE_TRUE | TYPE_FALSE},
               {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER},
               {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
               {"object", TYPE_OBJECT}};
    for (size_t i = 0; name && i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0)
            return all[i].types;
    }
    return 0;
}

static unsigned schema_face(yyjson_mut_val *value)
{
    unsigned types = TYPE_ALL, named = 0;
    yyjson_mut_val *type = yyjson_mut_obj_get(value, "type"), *each;
    yyjson_mut_val *constant = yyjson_mut_obj_get(value, "const");
    yyjson_mut_val *list = yyjson_mut_obj_get(value, "enum");
    size_t index, max;
    if (yyjson_mut_is_str(type))
        types &= schema_type_named(yyjson_mut_get_str(type));
    if (yyjson_mut_is_arr(type)) {
        yyjson_mut_arr_foreach(type, index, max, each) named |=
            schema_type_named(yyjson_mut_get_str(each));
        types &= named;
    }
    if (constant)
        types &= schema_types_of(constant);
    if (yyjson_mut_is_arr(list)) {
        named = 0;
        yyjson_mut_arr_foreach(list, index, max, each) named |= schema_types_of(each);
        types &= named;
    }
    return types;
}

/* Texts that both name: if all are texts and none is in both, they are apart. */
static bool schema_texts_apart(yyjson_mut_val *a, yyjson_mut_val *b)
{
    yyjson_mut_val *lists[2] = {yyjson_mut_obj_get(a, "enum"), yyjson_mut_obj_get(b, "enum")};
    yyjson_mut_val *ones[2] = {yyjson_mut_obj_get(a, "const"), yyjson_mut_obj_get(b, "const")};
    const size_t n_a = ones[0] ? 1 : yyjson_mut_arr_size(lists[0]);
    const size_t n_b = ones[1] ? 1 : yyjson_mut_arr_size(lists[1]);
    if (!n_a || !n_b || n_a * n_b > 10000)
        return false;
    for (size_t i = 0; i < n_a; i++) {
        yyjson_mut_val *first = ones[0] ? ones[0] : yyjson_mut_arr_get(lists[0], i);
        for (size_t k = 0; k < n_b; k++) {
            yyjson_mut_val *second = ones[1] ? ones[1] : yyjson_mut_arr_get(lists[1], k);
            if (!yyjson_mut_is_str(first) || !yyjson_mut_is_str(second) ||
                yyjson_mut_equals(first, second))
                return false;
        }
    }
    return true;
}

static bool schema_requires(yyjson_mut_val *value, yyjson_mut_val *name)
{
    yyjson_mut_val *required = yyjson_mut_obj_get(value, "required"), *each;
    size_t index, max;
    if (!yyjson_mut_is_arr(required))
        return false;
    yyjson_mut_arr_foreach(required, index, max, each)
    {
        if (yyjson_mut_equals(each, name))
            return true;
    }
    return false;
}

bool schema_disjoint(struct schema *schema, yyjson_mut_val *a, yyjson_mut_val *b, unsigned depth)
{
    for (unsigned i = 0; i < 8 && !schema->code; i++) { /* references are followed */
        if (yyjson_mut_is_obj(a) && yyjson_mut_obj_get(a, "$ref"))
            a = schema_target(schema, a, "$ref");
        if (yyjson_mut_is_obj(b) && yyjson_mut_obj_get(b, "$ref"))
            b = schema_target(schema, b, "$ref");
    }
    if (depth > 3 || !yyjson_mut_is_obj(a) || !yyjson_mut_is_obj(b))
        return false;
    const unsigned both = schema_face(a) & schema_face(b);
    if (!both || schema_texts_apart(a, b))
        return true;
    yyjson_mut_val *members = yyjson_mut_obj_get(a, "properties"), *key, *value;
    yyjson_mut_val *others = yyjson_mut_obj_get(b, "properties");
    size_t index, max;
    if (both != TYPE_OBJECT || !yyjson_mut_is_obj(members) || !yyjson_mut_is_obj(others))
        return false;
    yyjson_mut_obj_foreach(members, index, max, key, value)
    {
        yyjson_mut_val *other =
            yyjson_mut_obj_getn(others, yyjson_mut_get_str(key), yyjson_mut_get_len(key));
        if (other && schema_requires(a, key) && schema_requires(b, key) &&
            schema_disjoint(schema, value, other, depth + 1))
            return true;
    }
    return false;
}
