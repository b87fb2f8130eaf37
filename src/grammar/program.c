#include "grammar/program.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* Room for `more` elements behind `n` of them. */
static bool program_reserve(struct grammar *program, void **array, uint32_t *room, uint32_t n,
                            uint32_t more, size_t size)
{
    if (program->code)
        return false;
    if (n + more > LIMIT_GRAMMAR_NODES * 8u || more > LIMIT_GRAMMAR_NODES * 8u) {
        program->code = ERROR_BUSY;
        return false;
    }
    if (n + more <= *room)
        return true;
    const uint32_t wanted = (n + more) * 2;
    void *resized = mem_resize(*array, wanted, size);
    if (!resized) {
        program->code = ERROR_NO_MEMORY;
        return false;
    }
    *array = resized;
    *room = wanted;
    return true;
}

#define PROGRAM_RESERVE(program, array, more)                                                      \
    program_reserve(program, (void **)&(program)->array, &(program)->array##_room,                 \
                    (program)->n_##array, more, sizeof *(program)->array)

uint32_t program_node(struct grammar *program, enum node_kind kind)
{
    if (program->n_nodes >= LIMIT_GRAMMAR_NODES)
        program->code = program->code ? program->code : ERROR_BUSY;
    if (!PROGRAM_RESERVE(program, nodes, 1))
        return 0;
    program->nodes[program->n_nodes] =
        (struct grammar_node){.kind = (uint8_t)kind, .loop = program->loop};
    return program->n_nodes++;
}

uint32_t program_return(struct grammar *program)
{
    return program_node(program, NODE_RETURN);
}

uint32_t program_call(struct grammar *program, uint32_t rule, uint32_t then)
{
    const uint32_t node = program_node(program, NODE_CALL);
    if (program->code)
        return 0;
    program->nodes[node].n = rule;
    program->nodes[node].then = then;
    return node;
}

uint32_t program_split(struct grammar *program, const uint32_t *targets, uint32_t n)
{
    const uint32_t node = program_node(program, NODE_SPLIT);
    if (!PROGRAM_RESERVE(program, targets, n))
        return 0;
    if (n)
        memcpy(program->targets + program->n_targets, targets, n * sizeof *targets);
    program->nodes[node].first = program->n_targets;
    program->nodes[node].n = n;
    program->n_targets += n;
    return node;
}

uint32_t program_either(struct grammar *program, uint32_t a, uint32_t b)
{
    return program_split(program, (uint32_t[]){a, b}, 2);
}

void program_set_edges(struct grammar *program, uint32_t node, const struct grammar_edge *edges,
                       uint32_t n)
{
    if (!PROGRAM_RESERVE(program, edges, n))
        return;
    assert(program->nodes[node].kind == NODE_BYTES);
    if (n)
        memcpy(program->edges + program->n_edges, edges, n * sizeof *edges);
    program->nodes[node].first = program->n_edges;
    program->nodes[node].n = n;
    program->n_edges += n;
}

uint32_t program_byte(struct grammar *program, char byte, uint32_t target)
{
    const uint32_t node = program_node(program, NODE_BYTES);
    const struct grammar_edge edge = {(uint8_t)byte, (uint8_t)byte, target};
    program_set_edges(program, node, &edge, 1);
    return node;
}

uint32_t program_text(struct grammar *program, const char *text, uint32_t target)
{
    for (size_t i = strlen(text); i; i--)
        target = program_byte(program, text[i - 1], target);
    return target;
}

uint32_t program_loop(struct grammar *program, uint32_t n_min, uint32_t n_max, uint32_t exit)
{
    if (!PROGRAM_RESERVE(program, loops, 1))
        return 0;
    program->loops[program->n_loops] =
        (struct grammar_loop){.n_min = n_min, .n_max = n_max, .exit = exit};
    program->loop = program->n_loops + 1;
    return program->n_loops++;
}

uint32_t program_loop_node(struct grammar *program, uint32_t loop, enum node_kind kind)
{
    const uint32_t node = program_node(program, kind);
    if (!program->code)
        program->nodes[node].loop = loop + 1;
    return node;
}

void program_loop_end(struct grammar *program)
{
    program->loop = 0;
}

uint32_t program_rule(struct grammar *program)
{
    if (!PROGRAM_RESERVE(program, rules, 1))
        return 0;
    program->rules[program->n_rules] = 0;
    return program->n_rules++;
}

void program_set_rule(struct grammar *program, uint32_t rule, uint32_t entry)
{
    if (!program->code)
        program->rules[rule] = entry;
}

uint32_t program_words(struct grammar *program, uint32_t n)
{
    if (!PROGRAM_RESERVE(program, words, n))
        return 0;
    if (n)
        memset(program->words + program->n_words, 0, n * sizeof *program->words);
    program->n_words += n;
    return program->n_words - n;
}

uint32_t program_object(struct grammar *program, const struct grammar_object *object)
{
    if (!PROGRAM_RESERVE(program, objects, 1))
        return 0;
    program->objects[program->n_objects] = *object;
    return program->n_objects++;
}

uint32_t program_guard(struct grammar *program, struct grammar_guard guard)
{
    if (!PROGRAM_RESERVE(program, guards, 1))
        return 0;
    program->guards[program->n_guards] = guard;
    return program->n_guards++;
}

void grammar_free(struct grammar *grammar)
{
    if (!grammar)
        return;
    mem_free(grammar->nodes);
    mem_free(grammar->edges);
    mem_free(grammar->targets);
    mem_free(grammar->rules);
    mem_free(grammar->words);
    mem_free(grammar->loops);
    mem_free(grammar->objects);
    mem_free(grammar->guards);
    mem_free(grammar);
}

struct grammar_size grammar_size(const struct grammar *grammar)
{
    return (struct grammar_size){grammar->n_rules, grammar->n_nodes, grammar->n_edges};
}

/* ---- what can be ended ---- */

static bool program_rule_is_live(const struct grammar *program, uint32_t rule)
{
    return program->nodes[program->rules[rule]].is_live;
}

/* Whether all that must be there can be, and enough of it. */
static bool program_object_is_live(const struct grammar *program, uint32_t number)
{
    const struct grammar_object *object = &program->objects[number];
    uint32_t n_required = 0, n_possible = 0;
    bool is_open = false;
    for (uint32_t label = 0; label < object->n_labels; label++) {
        const bool is_live = program_rule_is_live(program, program->words[object->rules + label]);
        const uint32_t bit = 1u << (label % 32);
        if (is_live)
            program->words[object->live + label / 32] |= bit;
        if (label >= object->n_members) {
            is_open |= is_live;
            continue;
        }
        n_possible += is_live;
        if (program->words[object->required + label / 32] & bit) {
            n_required++;
            if (!is_live)
                return false;
        }
    }
    return n_required <= object->n_max && n_possible + is_open >= object->n_min &&
           object->n_min <= object->n_max;
}

static bool program_node_is_live(const struct grammar *program, const struct grammar_node *node)
{
    const struct grammar_loop *loop = node->loop ? &program->loops[node->loop - 1] : NULL;
    switch ((enum node_kind)node->kind) {
    case NODE_BYTES:
        for (uint32_t i = 0; i < node->n; i++) {
            if (program->nodes[program->edges[node->first + i].target].is_live)
                return true;
        }
        return false;
    case NODE_SPLIT:
        for (uint32_t i = 0; i < node->n; i++) {
            if (program->nodes[program->targets[node->first + i]].is_live)
                return true;
        }
        return false;
    case NODE_CALL:
        return program_rule_is_live(program, node->n) && program->nodes[node->then].is_live;
    case NODE_RETURN:
        return true;
    case NODE_LOOP:
        return program->nodes[loop->exit].is_live &&
               (loop->n_min == 0 || program->nodes[loop->again].is_live);
    case NODE_COUNT: /* not its loop's head, which asks for it */
        return program->nodes[loop->exit].is_live;
    case NODE_OBJECT:
        return program->nodes[node->then].is_live && program_object_is_live(program, node->object);
    case NODE_MEMBER: /* the same */
        return program_rule_is_live(
            program, program->words[program->objects[node->object].rules + node->label]);
    }
    return false;
}

static void program_find_live(struct grammar *program)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < program->n_nodes * 2; i++) { /* forth and back */
            const uint32_t at = i < program->n_nodes ? i : program->n_nodes * 2 - 1 - i;
            struct grammar_node *node = &program->nodes[at];
            if (!node->is_live && program_node_is_live(program, node))
                more = node->is_live = true;
        }
    }
    for (uint32_t i = 0; i < program->n_objects; i++)
        program_object_is_live(program, i);
}

/* Bytes that no edge tells apart. */
static void program_classify(struct grammar *program)
{
    bool begins[257] = {[0] = true};
    for (uint32_t i = 0; i < program->n_edges; i++) {
        begins[program->edges[i].low] = true;
        begins[program->edges[i].high + 1] = true;
    }
    program->n_classes = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (begins[byte])
            program->example[program->n_classes++] = (uint8_t)byte;
        program->class_of[byte] = (uint8_t)(program->n_classes - 1);
    }
}

enum error_code program_finish(struct grammar *program, struct error *err)
{
    if (program->code == ERROR_BUSY)
        return error_set(err, ERROR_BUSY, "the grammar needs more than %d states",
                         LIMIT_GRAMMAR_NODES);
    if (program->code)
        return error_set(err, program->code, "not enough memory for the grammar");
    program_find_live(program);
    program_classify(program);
    if (!program_rule_is_live(program, program->root))
        return error_set(err, ERROR_INVALID, "no text satisfies this");
    return ERROR_NONE;
}
