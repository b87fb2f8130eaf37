/* JSON without a schema: blanks, strings, any value. */
#include "grammar/grammar.h"

#include "grammar/regex.h"
#include "grammar/schema.h"

#include <string.h>

enum { JSON_INDENT_MAX = 32 };

/* Nothing, one blank, or a line end and an indent. */
static void json_ws_rule(struct schema *schema)
{
    struct grammar *program = schema->program;
    const uint32_t end = program_return(program);
    const uint32_t loop = program_loop(program, 0, JSON_INDENT_MAX, end);
    const uint32_t head = program_loop_node(program, loop, NODE_LOOP);
    const uint32_t count = program_loop_node(program, loop, NODE_COUNT);
    const uint32_t again = program_node(program, NODE_BYTES);
    const struct grammar_edge blanks[] = {{' ', ' ', count}, {'\t', '\t', count}};
    program_set_edges(program, again, blanks, 2);
    program_loop_end(program);
    const uint32_t entry = program_node(program, NODE_BYTES);
    const uint32_t line = program_byte(program, '\n', head);
    const struct grammar_edge first[] = {{' ', ' ', end}, {'\n', '\n', head}, {'\r', '\r', line}};
    program_set_edges(program, entry, first, 3);
    schema->ws = program_rule(program);
    program_set_rule(program, schema->ws, program_either(program, entry, end));
    if (program->code)
        return;
    program->loops[loop].again = again;
    program->loops[loop].head = head;
}

uint32_t json_ws(struct schema *schema, uint32_t then)
{
    return program_call(schema->program, schema->ws, then);
}

uint32_t json_string(struct schema *schema, uint32_t n_min, uint32_t n_max, uint32_t then)
{
    struct grammar *program = schema->program;
    if (n_min == 0 && n_max == GRAMMAR_MANY) {
        const uint32_t body = program_node(program, NODE_BYTES);
        encode_any(&schema->encoder, body, ENCODE_JSON, body, then);
        if (!program->code)
            program->nodes[body].is_plain = true;
        return program_byte(program, '"', body);
    }
    const uint32_t outer = program->loop;
    const uint32_t loop = program_loop(program, n_min, n_max, program_byte(program, '"', then));
    const uint32_t head = program_loop_node(program, loop, NODE_LOOP);
    const uint32_t count = program_loop_node(program, loop, NODE_COUNT);
    const uint32_t body = program_node(program, NODE_BYTES);
    encode_any(&schema->encoder, body, ENCODE_JSON, count, 0);
    program->loop = outer;
    if (program->code)
        return 0;
    program->nodes[body].is_plain = true;
    program->loops[loop].again = body;
    program->loops[loop].head = head;
    return program_byte(program, '"', head);
}

/* open ws (element (, ws element)* ws)? close: the elements' entry is made by the caller. */
static uint32_t json_list(struct schema *schema, char open, char close, uint32_t element,
                          uint32_t behind, uint32_t then)
{
    struct grammar *program = schema->program;
    const uint32_t end = program_byte(program, close, then);
    const uint32_t comma = program_byte(program, ',', json_ws(schema, element));
    const uint32_t next = program_either(program, comma, json_ws(schema, end));
    if (!program->code) { /* what follows an element was not known before */
        program->nodes[behind].kind = NODE_SPLIT;
        const uint32_t split = program_split(program, &next, 1);
        if (!program->code)
            program->nodes[behind] = program->nodes[split];
    }
    return program_byte(program, open, json_ws(schema, program_either(program, element, end)));
}

uint32_t json_any_object(struct schema *schema, uint32_t then)
{
    struct grammar *program = schema->program;
    const uint32_t behind = program_node(program, NODE_SPLIT);
    const uint32_t value = json_ws(schema, program_call(program, schema->any, behind));
    const uint32_t colon = program_byte(program, ':', value);
    const uint32_t member = program_call(program, schema->string, colon);
    return json_list(schema, '{', '}', member, behind, then);
}

static uint32_t json_any_array(struct schema *schema, uint32_t then)
{
    const uint32_t behind = program_node(schema->program, NODE_SPLIT);
    const uint32_t item = program_call(schema->program, schema->any, behind);
    return json_list(schema, '[', ']', item, behind, then);
}

void json_rules(struct schema *schema)
{
    struct grammar *program = schema->program;
    json_ws_rule(schema);
    schema->string = program_rule(program);
    program_set_rule(program, schema->string,
                     json_string(schema, 0, GRAMMAR_MANY, program_return(program)));
    schema->any = program_rule(program);
    const uint32_t end = program_return(program);
    const struct schema_branch nothing = {.types = TYPE_NUMBER};
    const uint32_t kinds[] = {
        program_call(program, schema->string, end),
        schema_write_number(schema, &nothing, end),
        json_any_array(schema, end),
        json_any_object(schema, end),
        program_text(program, "null", end),
        program_text(program, "true", end),
        program_text(program, "false", end),
    };
    program_set_rule(program, schema->any,
                     program_split(program, kinds, sizeof kinds / sizeof *kinds));
}
