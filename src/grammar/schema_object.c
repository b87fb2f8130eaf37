/* Objects of a branch: an automaton over all keys, whose labels are the members that the schemas
 * name and the kinds of other keys (which patterns they match); a rule for each label's value. */
#include "base/mem.h"
#include "grammar/schema.h"

#include <string.h>

enum { OBJECT_PATTERNS_MAX = 24, OBJECT_MEMBERS_MAX = 4096, OBJECT_KINDS_MAX = 512 };

struct object_pattern {
    const struct schema_fact *layer;
    yyjson_mut_val *value;
    struct dfa *dfa;
};

struct object_view {
    const struct schema_branch *branch;
    struct dfa_text *names;
    bool *is_required;
    uint32_t n_names, names_room, is_required_room;
    struct object_pattern patterns[OBJECT_PATTERNS_MAX];
    uint32_t n_patterns;
    uint32_t kinds[OBJECT_KINDS_MAX]; /* of other keys: a bit for each pattern they match */
    uint32_t n_kinds;
    bool has_too_many_kinds;
    struct dfa *members, *allowed; /* allowed NULL: any key */
    uint32_t *bounds, n_bounds;
    uint32_t n_min, n_max;
    yyjson_mut_val *min_owner;
    uint32_t *literals, literals_room, n_literals;
};

/* ---- what there is ---- */

static void object_add_name(struct schema *schema, struct object_view *view, yyjson_mut_val *name,
                            bool is_required)
{
    const char *data = yyjson_mut_get_str(name);
    const size_t size = yyjson_mut_get_len(name);
    uint32_t at = 0;
    while (at < view->n_names && (view->names[at].size != size ||
                                  (size && memcmp(view->names[at].data, data, size) != 0)))
        at++;
    if (at == view->n_names) {
        if (at == OBJECT_MEMBERS_MAX)
            schema_refuse(schema, ERROR_BUSY, NULL, NULL, "an object names too many members");
        if (!SCHEMA_ROOM(schema, view, names, at + 1) ||
            !SCHEMA_ROOM(schema, view, is_required, at + 1))
            return;
        view->names[at] = (struct dfa_text){data, size};
        view->is_required[at] = false;
        view->n_names++;
    }
    view->is_required[at] |= is_required;
}

static void object_add_layer(struct schema *schema, struct object_view *view,
                             const struct schema_fact *layer)
{
    yyjson_mut_val *key, *value;
    size_t index, max;
    yyjson_mut_obj_foreach(yyjson_mut_obj_get(layer->owner, "properties"), index, max, key, value)
        object_add_name(schema, view, key, false);
    yyjson_mut_obj_foreach(yyjson_mut_obj_get(layer->owner, "patternProperties"), index, max, key,
                           value)
    {
        if (view->n_patterns == OBJECT_PATTERNS_MAX)
            schema_refuse(schema, ERROR_BUSY, layer->owner, "patternProperties",
                          "too many patterns on one object");
        if (schema->code)
            return;
        struct object_pattern *pattern = &view->patterns[view->n_patterns];
        *pattern = (struct object_pattern){layer, value, NULL};
        pattern->dfa = schema_pattern(schema, layer->owner, "patternProperties",
                                      yyjson_mut_get_str(key), yyjson_mut_get_len(key));
        view->n_patterns += pattern->dfa != NULL;
    }
}

/* Strings under a set of literals: each branch's, together. NULL without a failure: any. */
static struct dfa *object_strings(struct schema *schema, const uint32_t *literals, uint32_t n)
{
    struct schema_branch *kept = schema->branches;
    const uint32_t n_kept = schema->n_branches, kept_room = schema->branches_room;
    struct dfa *none = NULL; /* what no branch has */
    bool has_any = false;
    struct error why;
    schema->branches = NULL;
    schema->n_branches = schema->branches_room = 0;
    schema_expand(schema, literals, n);
    for (uint32_t i = 0; i < schema->n_branches; i++) {
        struct schema_branch *branch = &schema->branches[i];
        uint32_t n_min, n_max;
        struct dfa *one = NULL, *met = NULL;
        enum error_code code = ERROR_NONE;
        if (!schema->code && (branch->types & TYPE_STRING)) {
            one = schema_strings(schema, branch, true, &n_min, &n_max);
            has_any |= !one;
            if (one)
                code = none ? dfa_both(none, false, one, true, &met, &why)
                            : dfa_inverted(one, &met, &why);
            if (code)
                schema_refuse(schema, code, NULL, NULL, why.text);
            if (one) {
                dfa_free(none);
                none = code ? NULL : met;
            }
            dfa_free(one);
        }
        schema_branch_deinit(branch);
    }
    mem_free(schema->branches);
    schema->branches = kept;
    schema->n_branches = n_kept;
    schema->branches_room = kept_room;
    struct dfa *all = NULL;
    enum error_code code = ERROR_NONE;
    if (!schema->code && !has_any)
        code = none ? dfa_inverted(none, &all, &why) : dfa_of_texts(NULL, 0, &all, &why);
    if (code)
        schema_refuse(schema, code, NULL, NULL, why.text);
    dfa_free(none);
    return code ? NULL : all;
}

static void object_read(struct schema *schema, struct object_view *view)
{
    const struct schema_branch *branch = view->branch;
    uint32_t *names = mem_new_array((size_t)branch->n_facts + 1, sizeof *names), n_names = 0;
    view->n_max = GRAMMAR_MANY;
    if (!names)
        schema_no_memory(schema);
    for (uint32_t i = 0; i < branch->n_facts && !schema->code; i++) {
        const struct schema_fact *fact = &branch->facts[i];
        if (fact->kind == FACT_LAYER)
            object_add_layer(schema, view, fact);
        if (fact->kind == FACT_MEMBER || fact->kind == FACT_REQUIRED)
            object_add_name(schema, view, fact->name, fact->kind == FACT_REQUIRED);
        if (fact->kind == FACT_NAMES)
            names[n_names++] = fact->literal;
        if (fact->kind == FACT_MEMBERS_MIN && fact->n > view->n_min) {
            view->n_min = fact->n;
            view->min_owner = fact->owner;
        }
        if (fact->kind == FACT_MEMBERS_MAX && fact->n < view->n_max)
            view->n_max = fact->n;
    }
    if (!schema->code && n_names)
        view->allowed = object_strings(schema, names, n_names);
    mem_free(names);
}

/* ---- the automaton of keys: a state of each of its parts ---- */

static bool object_step(const void *context, const uint32_t *from, uint32_t range, uint32_t *to)
{
    const struct object_view *view = context;
    const uint32_t code_point = view->bounds[range];
    const struct dfa *members = view->members, *allowed = view->allowed;
    to[0] = members->next[(size_t)from[0] * members->n_ranges + dfa_range_of(members, code_point)];
    to[1] = 0;
    if (allowed)
        to[1] =
            allowed->next[(size_t)from[1] * allowed->n_ranges + dfa_range_of(allowed, code_point)];
    for (uint32_t i = 0; i < view->n_patterns; i++) {
        const struct dfa *dfa = view->patterns[i].dfa;
        to[2 + i] = dfa->next[(size_t)from[2 + i] * dfa->n_ranges + dfa_range_of(dfa, code_point)];
    }
    return !allowed || to[1];
}

static uint32_t object_label(const void *context, const uint32_t *state)
{
    struct object_view *view = (struct object_view *)context;
    uint32_t kind = 0, at = 0;
    if (view->allowed && !view->allowed->labels[state[1]])
        return 0;
    if (view->members->labels[state[0]])
        return view->members->labels[state[0]];
    for (uint32_t i = 0; i < view->n_patterns; i++)
        kind |= (uint32_t)(view->patterns[i].dfa->labels[state[2 + i]] != 0) << i;
    while (at < view->n_kinds && view->kinds[at] != kind)
        at++;
    if (at == OBJECT_KINDS_MAX) {
        view->has_too_many_kinds = true;
        return 0;
    }
    if (at == view->n_kinds)
        view->kinds[view->n_kinds++] = kind;
    return view->n_names + at + 1;
}

static bool object_merge(struct object_view *view, const struct dfa *dfa)
{
    uint32_t n;
    uint32_t *merged =
        dfa_merge_bounds(view->bounds, view->n_bounds, dfa->bounds, dfa->n_ranges, &n);
    mem_free(view->bounds);
    view->bounds = merged;
    view->n_bounds = n;
    return merged;
}

static struct dfa *object_keys(struct schema *schema, struct object_view *view)
{
    uint32_t start[2 + OBJECT_PATTERNS_MAX] = {0};
    struct dfa *dfa = NULL;
    struct error why = {0};
    enum error_code code = dfa_of_texts(view->names, view->n_names, &view->members, &why);
    bool has_memory = !code && object_merge(view, view->members);
    if (has_memory && view->allowed)
        has_memory = object_merge(view, view->allowed);
    for (uint32_t i = 0; i < view->n_patterns && has_memory; i++) {
        has_memory = object_merge(view, view->patterns[i].dfa);
        start[2 + i] = view->patterns[i].dfa->start;
    }
    if (has_memory) {
        start[0] = view->members->start;
        start[1] = view->allowed ? view->allowed->start : 0;
        const struct dfa_source source = {view,  view->bounds, view->n_bounds, 2 + view->n_patterns,
                                          start, object_step,  object_label};
        code = dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, &dfa, &why);
    }
    if (code)
        schema_refuse(schema, code, NULL, NULL, why.text);
    else if (!has_memory)
        schema_no_memory(schema);
    else if (view->has_too_many_kinds)
        schema_refuse(schema, ERROR_BUSY, NULL, NULL, "an object's patterns overlap too much");
    return code ? NULL : dfa;
}

/* ---- values ---- */

static void object_want(struct schema *schema, struct object_view *view, uint32_t literal)
{
    if (SCHEMA_ROOM(schema, view, literals, view->n_literals + 1))
        view->literals[view->n_literals++] = literal;
}

/* Whether the layer says something of the key: member `name`, or (NULL) the others of a kind. */
static bool object_layer(struct schema *schema, struct object_view *view,
                         const struct schema_fact *layer, const struct dfa_text *name,
                         uint32_t kind, bool adds)
{
    yyjson_mut_val *value = NULL;
    bool is_said = false;
    if (name)
        value = yyjson_mut_obj_getn(yyjson_mut_obj_get(layer->owner, "properties"), name->data,
                                    name->size);
    if (value && adds)
        object_want(schema, view, schema_literal(schema, value, false));
    is_said = value != NULL;
    for (uint32_t i = 0; i < view->n_patterns; i++) {
        if (view->patterns[i].layer->owner != layer->owner || !(kind >> i & 1) ||
            view->patterns[i].layer != layer)
            continue;
        is_said = true;
        if (adds)
            object_want(schema, view, schema_literal(schema, view->patterns[i].value, false));
    }
    value = yyjson_mut_obj_get(layer->owner, "additionalProperties");
    if (!is_said && value && adds)
        object_want(schema, view, schema_literal(schema, value, false));
    return is_said || value;
}

static bool object_evaluates(struct schema *schema, struct object_view *view,
                             const struct schema_fact *asker, const struct dfa_text *name,
                             uint32_t kind)
{
    for (uint32_t i = 0; i < view->branch->n_facts; i++) {
        const struct schema_fact *fact = &view->branch->facts[i];
        if (fact == asker || !schema_in_scope(schema, fact->scope, asker->n))
            continue;
        if (fact->kind == FACT_LAYER && object_layer(schema, view, fact, name, kind, false))
            return true;
        if (fact->kind == FACT_REST_MEMBERS && fact->scope != asker->n)
            return true;
    }
    return false;
}

/* *is_open: not every value is ruled out at a glance. */
static uint32_t object_value(struct schema *schema, struct object_view *view,
                             const struct dfa_text *name, uint32_t kind, bool *is_open)
{
    view->n_literals = 0;
    for (uint32_t i = 0; i < view->branch->n_facts && !schema->code; i++) {
        const struct schema_fact *fact = &view->branch->facts[i];
        if (fact->kind == FACT_LAYER)
            object_layer(schema, view, fact, name, kind, true);
        if (fact->kind == FACT_REST_MEMBERS && !object_evaluates(schema, view, fact, name, kind))
            object_want(schema, view, fact->literal);
        if (fact->kind == FACT_MEMBER && name && yyjson_mut_get_len(fact->name) == name->size &&
            memcmp(yyjson_mut_get_str(fact->name), name->data, name->size) == 0)
            object_want(schema, view, fact->literal);
    }
    *is_open = true;
    for (uint32_t i = 0; i < view->n_literals && !schema->code; i++) {
        const uint32_t literal = view->literals[i];
        yyjson_mut_val *value = schema->value_of[literal / 2];
        if (yyjson_mut_is_bool(value) && yyjson_mut_get_bool(value) == (bool)(literal & 1))
            *is_open = false;
    }
    return schema->code ? 0 : schema_rule(schema, view->literals, view->n_literals);
}

/* ---- nodes ---- */

static uint32_t object_kind_of(const struct object_view *view, const struct dfa_text *name)
{
    uint32_t kind = 0;
    for (uint32_t i = 0; i < view->n_patterns; i++)
        kind |= (uint32_t)(dfa_label_of(view->patterns[i].dfa, name->data, name->size) != 0) << i;
    return kind;
}

/* The program's object: its labels, their rules, which are required, how many there may be. */
static uint32_t object_declare(struct schema *schema, struct object_view *view)
{
    struct grammar *program = schema->program;
    struct grammar_object object = {.n_members = view->n_names,
                                    .n_labels = view->n_names + view->n_kinds,
                                    .n_min = view->n_min,
                                    .n_max = view->n_max};
    uint32_t n_required = 0;
    bool is_open = false, any_open = false;
    object.n_words = (object.n_labels + 31) / 32;
    object.rules = program_words(program, object.n_labels);
    object.required = program_words(program, object.n_words);
    object.live = program_words(program, object.n_words);
    for (uint32_t label = 0; label < object.n_labels && !schema->code && !program->code; label++) {
        const struct dfa_text *name = label < view->n_names ? &view->names[label] : NULL;
        const uint32_t kind =
            name ? object_kind_of(view, name) : view->kinds[label - view->n_names];
        const uint32_t rule = object_value(schema, view, name, kind, &is_open);
        if (program->code)
            break;
        program->words[object.rules + label] = rule;
        any_open |= !name && is_open;
        if (name && view->is_required[label]) {
            program->words[object.required + label / 32] |= 1u << (label % 32);
            n_required++;
        }
    }
    if (object.n_min <= n_required)
        object.n_min = 0;
    if (object.n_min > 1 && any_open)
        schema_refuse(schema, ERROR_UNSUPPORTED, view->min_owner, "minProperties",
                      "above 1 needs members that the schema names, and no others");
    return program_object(program, &object);
}

/* For each state the labels that can still be reached, as guards + 1. */
static uint32_t *object_guards(struct schema *schema, const struct dfa *dfa, uint32_t object)
{
    struct grammar *program = schema->program;
    uint32_t *guards = mem_new_array(dfa->n_states, sizeof *guards);
    if (!guards || program->code) {
        schema_no_memory(schema);
        mem_free(guards);
        return NULL;
    }
    const uint32_t n_words = program->objects[object].n_words;
    const uint32_t first = program_words(program, n_words * dfa->n_states);
    for (bool more = !program->code; more;) {
        more = false;
        for (uint32_t state = dfa->n_states - 1; state; state--) {
            uint32_t *set = program->words + first + state * n_words;
            const uint32_t label = dfa->labels[state];
            if (label)
                set[(label - 1) / 32] |= 1u << ((label - 1) % 32);
            for (uint32_t range = 0; range < dfa->n_ranges; range++) {
                const uint32_t next = dfa->next[(size_t)state * dfa->n_ranges + range];
                const uint32_t *other = program->words + first + next * n_words;
                for (uint32_t i = 0; i < n_words; i++) {
                    more |= (other[i] & ~set[i]) != 0;
                    set[i] |= other[i];
                }
            }
        }
    }
    for (uint32_t state = 1; state < dfa->n_states; state++)
        guards[state] =
            program_guard(program, (struct grammar_guard){object, first + state * n_words}) + 1;
    return guards;
}

static uint32_t object_node(struct schema *schema, uint32_t object, uint32_t key, uint32_t end)
{
    const uint32_t node = program_node(schema->program, NODE_OBJECT);
    if (schema->program->code)
        return 0;
    schema->program->nodes[node].object = object;
    schema->program->nodes[node].first = key;
    schema->program->nodes[node].then = end;
    return node;
}

static uint32_t object_nodes(struct schema *schema, const struct dfa *dfa, uint32_t object,
                             uint32_t then)
{
    struct grammar *program = schema->program;
    const uint32_t n_labels = program->code ? 0 : program->objects[object].n_labels;
    uint32_t *ends = mem_new_array((size_t)n_labels + 1, sizeof *ends);
    uint32_t *guards = object_guards(schema, dfa, object);
    uint32_t entry = 0;
    if (ends && guards && !program->code) {
        const uint32_t end = program_byte(program, '}', then);
        const uint32_t behind = object_node(schema, object, 0, json_ws(schema, end));
        for (uint32_t label = 0; label < n_labels && !program->code; label++) {
            const uint32_t value = program_call(
                program, program->words[program->objects[object].rules + label], behind);
            const uint32_t colon = program_byte(program, ':', json_ws(schema, value));
            const uint32_t member = program_node(program, NODE_MEMBER);
            if (program->code)
                break;
            program->nodes[member].object = object;
            program->nodes[member].label = label;
            program->nodes[member].then = colon;
            ends[label] = member;
        }
        const uint32_t keys = encode_dfa(&schema->encoder, dfa, ENCODE_JSON, ends, guards);
        const uint32_t key = program_byte(program, '"', keys);
        const uint32_t comma = program_byte(program, ',', json_ws(schema, key));
        if (!program->code)
            program->nodes[behind].first = comma;
        const uint32_t first = object_node(schema, object, key, end);
        entry = program_byte(program, '{', json_ws(schema, first));
    }
    mem_free(ends);
    mem_free(guards);
    return entry;
}

uint32_t schema_write_object(struct schema *schema, const struct schema_branch *branch,
                             uint32_t then)
{
    struct object_view *view = mem_new(sizeof *view);
    uint32_t entry = 0;
    if (!view) {
        schema_no_memory(schema);
        return 0;
    }
    view->branch = branch;
    object_read(schema, view);
    struct dfa *keys = schema->code ? NULL : object_keys(schema, view);
    const uint32_t object = schema->code ? 0 : object_declare(schema, view);
    if (!schema->code)
        entry = object_nodes(schema, keys, object, then);
    dfa_free(keys);
    dfa_free(view->members);
    dfa_free(view->allowed);
    for (uint32_t i = 0; i < view->n_patterns; i++)
        dfa_free(view->patterns[i].dfa);
    mem_free(view->bounds);
    mem_free(view->names);
    mem_free(view->is_required);
    mem_free(view->literals);
    mem_free(view);
    return entry;
}
