/* GBNF, llama.cpp's notation for grammars, as a program. Each group and each repeated element is a
 * rule of its own. */
#include "base/mem.h"
#include "grammar/compile.h"
#include "grammar/encode.h"
#include "grammar/regex_parse.h"

#include <stdio.h>
#include <string.h>

enum { GBNF_RULES_MAX = 4096, GBNF_COUNT_MAX = 100000, GBNF_EMPTY_COUNT_MAX = 1000 };

struct gbnf_name {
    const char *data;
    size_t size;
    uint32_t rule;
    bool is_defined;
};

struct gbnf {
    const char *begin, *at, *end;
    struct grammar *program;
    struct encoder encoder;
    struct gbnf_name *names;
    uint32_t n_names, names_room;
    struct error *err;
    enum error_code code;
    unsigned depth;
};

static uint32_t gbnf_fail(struct gbnf *in, enum error_code code, const char *why)
{
    unsigned line = 1;
    for (const char *at = in->begin; at < in->at && at < in->end; at++)
        line += *at == '\n';
    if (!in->code)
        in->code = error_set(in->err, code, "line %u: %s", line, why);
    in->at = in->end;
    return 0;
}

/* Blanks and comments; line ends where `lines`. */
static void gbnf_skip(struct gbnf *in, bool lines)
{
    for (; in->at < in->end; in->at++) {
        if (*in->at == '#')
            while (in->at + 1 < in->end && in->at[1] != '\n')
                in->at++;
        else if (*in->at != ' ' && *in->at != '\t' && !(lines && strchr("\r\n", *in->at)))
            break;
    }
}

static bool gbnf_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static struct gbnf_name *gbnf_read_name(struct gbnf *in)
{
    const char *from = in->at;
    while (in->at < in->end && gbnf_is_word(*in->at))
        in->at++;
    const size_t size = (size_t)(in->at - from);
    for (uint32_t i = 0; i < in->n_names; i++) {
        if (in->names[i].size == size && memcmp(in->names[i].data, from, size) == 0)
            return &in->names[i];
    }
    if (!size || in->n_names == GBNF_RULES_MAX) {
        gbnf_fail(in, size ? ERROR_BUSY : ERROR_INVALID,
                  size ? "too many rules" : "a rule's name is missing");
        return NULL;
    }
    if (in->n_names == in->names_room) {
        const uint32_t room = in->names_room * 2 + 16;
        struct gbnf_name *names = mem_resize(in->names, room, sizeof *names);
        if (!names) {
            gbnf_fail(in, ERROR_NO_MEMORY, "not enough memory for the grammar");
            return NULL;
        }
        in->names = names;
        in->names_room = room;
    }
    in->names[in->n_names] = (struct gbnf_name){from, size, program_rule(in->program), false};
    return &in->names[in->n_names++];
}

/* ---- characters ---- */

static uint32_t gbnf_hex(struct gbnf *in, unsigned digits)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++, in->at++) {
        const char c = in->at < in->end ? *in->at : 0, lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            value = value * 16 + (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + (uint32_t)(lower - 'a') + 10;
        else
            return gbnf_fail(in, ERROR_INVALID, "hexadecimal digits are missing");
    }
    return value < CODE_POINT_END ? value : gbnf_fail(in, ERROR_INVALID, "no code point");
}

static uint32_t gbnf_char(struct gbnf *in)
{
    if (in->at == in->end || *in->at == '\n')
        return gbnf_fail(in, ERROR_INVALID, "a literal or class has no end");
    if (*in->at != '\\')
        return dfa_read_code_point(&in->at, in->end);
    if (++in->at == in->end)
        return gbnf_fail(in, ERROR_INVALID, "nothing behind '\\'");
    const char c = *in->at++;
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'x':
        return gbnf_hex(in, 2);
    case 'u':
        return gbnf_hex(in, 4);
    case 'U':
        return gbnf_hex(in, 8);
    }
    return strchr("\"\\[]^-", c) ? (uint32_t)(uint8_t)c
                                 : gbnf_fail(in, ERROR_INVALID, "no such escape");
}

/* One code point of the tree's ranges, then `then`. */
static uint32_t gbnf_set(struct gbnf *in, const struct regex_tree *tree, uint32_t then)
{
    uint32_t bounds[2 * 256 + 1], next[2 * (2 * 256 + 1) + 2 * (2 * 256 + 1)] = {0};
    struct dfa dfa = {.n_states = 3, .start = 1, .bounds = bounds, .next = next};
    uint32_t labels[3] = {0, 0, 1}, from = 0;
    if (tree->n_ranges > 255)
        return gbnf_fail(in, ERROR_BUSY, "a class has too many ranges");
    bool in_set[2 * 256 + 1] = {false};
    for (uint32_t i = 0; i < tree->n_ranges; i++) {
        if (tree->ranges[i].low > from || i == 0) {
            if (tree->ranges[i].low > from)
                bounds[dfa.n_ranges++] = from;
        }
        in_set[dfa.n_ranges] = true;
        bounds[dfa.n_ranges++] = tree->ranges[i].low;
        from = tree->ranges[i].high + 1;
    }
    if (from < CODE_POINT_END)
        bounds[dfa.n_ranges++] = from;
    for (uint32_t i = 0; i < dfa.n_ranges; i++)
        next[dfa.n_ranges + i] = in_set[i] ? 2 : 0;
    dfa.labels = labels;
    return encode_dfa(&in->encoder, &dfa, ENCODE_RAW, &then, NULL);
}

static uint32_t gbnf_class(struct gbnf *in, uint32_t then)
{
    struct regex_tree tree = {0};
    const bool is_inverted = in->at < in->end && *in->at == '^';
    in->at += is_inverted;
    bool has_memory = true;
    while (!in->code && has_memory && (in->at == in->end || *in->at != ']')) {
        const uint32_t low = gbnf_char(in);
        uint32_t high = low;
        if (in->end - in->at >= 2 && in->at[0] == '-' && in->at[1] != ']') {
            in->at++;
            high = gbnf_char(in);
        }
        if (!in->code && high < low)
            gbnf_fail(in, ERROR_INVALID, "a range from high to low");
        has_memory = in->code || regex_range_add(&tree, low, high);
    }
    has_memory = has_memory && (in->code || regex_set_finish(&tree, 0, is_inverted));
    if (!has_memory)
        gbnf_fail(in, ERROR_NO_MEMORY, "not enough memory for a class");
    in->at += in->at < in->end;
    const uint32_t entry = in->code ? 0 : gbnf_set(in, &tree, then);
    regex_tree_deinit(&tree);
    return entry;
}

/* A literal's nodes are made from its end: its bytes are read first. */
static uint32_t gbnf_literal(struct gbnf *in, uint32_t then)
{
    const char *at = in->at;
    uint32_t *points = mem_new_array((size_t)(in->end - at) + 1, sizeof *points), n = 0;
    if (!points)
        return gbnf_fail(in, ERROR_NO_MEMORY, "not enough memory for a literal");
    while (!in->code && (in->at == in->end || *in->at != '"'))
        points[n++] = gbnf_char(in);
    in->at += in->at < in->end;
    for (; n && !in->code; n--) {
        struct regex_tree tree = {0};
        if (regex_range_add(&tree, points[n - 1], points[n - 1]))
            then = gbnf_set(in, &tree, then);
        else
            gbnf_fail(in, ERROR_NO_MEMORY, "not enough memory for a literal");
        regex_tree_deinit(&tree);
    }
    mem_free(points);
    return then;
}

/* ---- elements ---- */

static uint32_t gbnf_alternatives(struct gbnf *in, uint32_t then, bool is_nested);

/* An element as a rule; WORD_TABLE_NONE: none begins here. */
static uint32_t gbnf_element(struct gbnf *in)
{
    struct grammar *program = in->program;
    const char c = in->at < in->end ? *in->at : 0;
    if (gbnf_is_word(c)) {
        const struct gbnf_name *name = gbnf_read_name(in);
        return name ? name->rule : 0;
    }
    if (c != '"' && c != '[' && c != '(' && c != '.')
        return WORD_TABLE_NONE;
    const uint32_t rule = program_rule(program), end = program_return(program);
    uint32_t entry = 0;
    in->at++;
    if (c == '"') {
        entry = gbnf_literal(in, end);
    } else if (c == '[') {
        entry = gbnf_class(in, end);
    } else if (c == '.') {
        entry = program_node(program, NODE_BYTES);
        encode_any(&in->encoder, entry, ENCODE_RAW, end, 0);
    } else {
        if (in->depth++ == LIMIT_GRAMMAR_DEPTH)
            return gbnf_fail(in, ERROR_BUSY, "groups are nested too deeply");
        entry = gbnf_alternatives(in, end, true);
        in->depth--;
        if (!in->code && (in->at == in->end || *in->at != ')'))
            return gbnf_fail(in, ERROR_INVALID, "')' is missing");
        in->at += in->at < in->end;
    }
    program_set_rule(program, rule, entry);
    return rule;
}

static bool gbnf_number(struct gbnf *in, uint32_t *value)
{
    const char *from = in->at;
    for (*value = 0; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++)
        *value = *value <= GBNF_COUNT_MAX ? *value * 10 + (uint32_t)(*in->at - '0') : *value;
    if (*value > GBNF_COUNT_MAX)
        gbnf_fail(in, ERROR_BUSY, "a count above 100000");
    return in->at > from;
}

static bool gbnf_quantifier(struct gbnf *in, uint32_t *n_min, uint32_t *n_max)
{
    const char c = in->at < in->end ? *in->at : 0;
    *n_min = c == '+';
    *n_max = c == '?' ? 1 : GRAMMAR_MANY;
    if (c != '*' && c != '+' && c != '?' && c != '{')
        return false;
    in->at++;
    if (c != '{')
        return true;
    if (!gbnf_number(in, n_min))
        gbnf_fail(in, ERROR_INVALID, "a number is missing behind '{'");
    *n_max = *n_min;
    if (in->at < in->end && *in->at == ',') {
        in->at++;
        if (!gbnf_number(in, n_max))
            *n_max = GRAMMAR_MANY;
    }
    if (in->at == in->end || *in->at != '}' || *n_max < *n_min)
        gbnf_fail(in, ERROR_INVALID, "'{' needs a count and '}'");
    in->at += in->at < in->end;
    return true;
}

static uint32_t gbnf_repeat(struct gbnf *in, uint32_t element, uint32_t n_min, uint32_t n_max)
{
    struct grammar *program = in->program;
    const uint32_t rule = program_rule(program);
    const uint32_t loop = program_loop(program, n_min, n_max, program_return(program));
    const uint32_t head = program_loop_node(program, loop, NODE_LOOP);
    const uint32_t count = program_loop_node(program, loop, NODE_COUNT);
    const uint32_t again = program_call(program, element, count);
    program_loop_end(program);
    program_set_rule(program, rule, head);
    if (program->code)
        return 0;
    program->loops[loop].again = again;
    program->loops[loop].head = head;
    return rule;
}

/* Elements one after another: calls are chained once all are known. */
static uint32_t gbnf_sequence(struct gbnf *in, uint32_t then, bool is_nested)
{
    struct grammar *program = in->program;
    uint32_t first = 0, last = 0;
    for (gbnf_skip(in, is_nested); !in->code; gbnf_skip(in, is_nested)) {
        uint32_t rule = gbnf_element(in), n_min, n_max;
        if (rule == WORD_TABLE_NONE)
            break;
        while (!in->code && gbnf_quantifier(in, &n_min, &n_max))
            rule = gbnf_repeat(in, rule, n_min, n_max);
        const uint32_t call = program_call(program, rule, then);
        if (last && !program->code)
            program->nodes[last].then = call;
        first = first ? first : call;
        last = call;
    }
    return first ? first : program_split(program, &then, 1);
}

static uint32_t gbnf_alternatives(struct gbnf *in, uint32_t then, bool is_nested)
{
    uint32_t entry = gbnf_sequence(in, then, is_nested);
    for (gbnf_skip(in, true); !in->code && in->at < in->end && *in->at == '|';
         gbnf_skip(in, true)) {
        in->at++;
        gbnf_skip(in, true);
        entry = program_either(in->program, entry, gbnf_sequence(in, then, is_nested));
    }
    return entry;
}

static void gbnf_rule(struct gbnf *in)
{
    struct gbnf_name *name = gbnf_read_name(in);
    gbnf_skip(in, false);
    if (!name || in->code)
        return;
    if (in->end - in->at < 3 || memcmp(in->at, "::=", 3) != 0) {
        gbnf_fail(in, ERROR_INVALID, "'::=' is missing");
        return;
    }
    if (name->is_defined) {
        gbnf_fail(in, ERROR_INVALID, "this rule was there before");
        return;
    }
    name->is_defined = true;
    const uint32_t rule = name->rule; /* the list may move */
    in->at += 3;
    gbnf_skip(in, true);
    const uint32_t entry = gbnf_alternatives(in, program_return(in->program), false);
    program_set_rule(in->program, rule, entry);
    gbnf_skip(in, false);
}

/* ---- left recursion: a rule that can call itself before any byte ---- */

struct gbnf_walk {
    const struct grammar *program;
    bool *is_empty;    /* of each rule: it can return without a byte */
    uint8_t *visiting; /* of each rule: 1 under way, 2 done */
    bool *seen;        /* of each node, in one rule's walk */
    unsigned depth;
    uint32_t found; /* + 1: a rule that calls itself first */
};

/* Whether the rule's end is reached from the node without a byte. Notes calls on the way. */
static bool gbnf_walk_node(struct gbnf_walk *walk, uint32_t number, uint32_t *calls, uint32_t *n)
{
    const struct grammar_node *node = &walk->program->nodes[number];
    const struct grammar_loop *loop = node->loop ? &walk->program->loops[node->loop - 1] : NULL;
    bool ends = false;
    if (walk->seen[number])
        return false;
    walk->seen[number] = true;
    switch ((enum node_kind)node->kind) {
    case NODE_RETURN:
        return true;
    case NODE_SPLIT:
        for (uint32_t i = 0; i < node->n; i++)
            ends |= gbnf_walk_node(walk, walk->program->targets[node->first + i], calls, n);
        return ends;
    case NODE_CALL:
        calls[(*n)++] = node->n;
        return walk->is_empty[node->n] && gbnf_walk_node(walk, node->then, calls, n);
    case NODE_LOOP:
        ends = gbnf_walk_node(walk, loop->again, calls, n);
        return (loop->n_min == 0 || ends) && gbnf_walk_node(walk, loop->exit, calls, n);
    case NODE_COUNT: /* once more, or all of it is empty */
        return true;
    case NODE_BYTES:
    case NODE_OBJECT:
    case NODE_MEMBER:
        return false;
    }
    return false;
}

static bool gbnf_walk_rule(struct gbnf_walk *walk, uint32_t rule, uint32_t *calls, uint32_t *n)
{
    memset(walk->seen, 0, walk->program->n_nodes);
    *n = 0;
    return gbnf_walk_node(walk, walk->program->rules[rule], calls, n);
}

static void gbnf_visit(struct gbnf_walk *walk, uint32_t rule, const uint32_t *starts,
                       const uint32_t *calls)
{
    if (walk->visiting[rule] == 2 || walk->found)
        return;
    if (walk->visiting[rule] == 1 || walk->depth > GBNF_RULES_MAX) {
        walk->found = rule + 1;
        return;
    }
    walk->visiting[rule] = 1;
    walk->depth++;
    for (uint32_t i = starts[rule]; i < starts[rule + 1]; i++)
        gbnf_visit(walk, calls[i], starts, calls);
    walk->depth--;
    walk->visiting[rule] = 2;
}

/* A loop whose element may be empty counts without a byte: its count is bounded. */
static bool gbnf_counts_empty(const struct gbnf_walk *walk)
{
    const struct grammar *program = walk->program;
    for (uint32_t i = 0; i < program->n_loops; i++) {
        const struct grammar_loop *loop = &program->loops[i];
        const uint32_t n = loop->n_max == GRAMMAR_MANY ? loop->n_min : loop->n_max;
        if (walk->is_empty[program->nodes[loop->again].n] && n > GBNF_EMPTY_COUNT_MAX)
            return true;
    }
    return false;
}

static void gbnf_check(struct gbnf *in)
{
    struct grammar *program = in->program;
    const uint32_t n_rules = program->n_rules, n_nodes = program->n_nodes;
    struct gbnf_walk walk = {.program = program};
    uint32_t *calls = mem_new_array((size_t)n_nodes + 1, sizeof *calls);
    uint32_t *starts = mem_new_array((size_t)n_rules + 1, sizeof *starts), n;
    walk.is_empty = mem_new_array(n_rules, sizeof *walk.is_empty);
    walk.visiting = mem_new_array(n_rules, 1);
    walk.seen = mem_new_array((size_t)n_nodes + 1, sizeof *walk.seen);
    if (!calls || !starts || !walk.is_empty || !walk.visiting || !walk.seen) {
        gbnf_fail(in, ERROR_NO_MEMORY, "not enough memory for the grammar");
    } else if ((uint64_t)n_rules * n_nodes > UINT64_C(1) << 30) {
        gbnf_fail(in, ERROR_BUSY, "the grammar has too many rules and elements");
    } else {
        for (bool more = true; more;) {
            more = false;
            for (uint32_t rule = 0; rule < n_rules; rule++) {
                if (!walk.is_empty[rule] && gbnf_walk_rule(&walk, rule, calls, &n))
                    more = walk.is_empty[rule] = true;
            }
        }
        for (uint32_t rule = 0; rule < n_rules; rule++) {
            gbnf_walk_rule(&walk, rule, calls + starts[rule], &n);
            starts[rule + 1] = starts[rule] + n;
        }
        for (uint32_t rule = 0; rule < n_rules; rule++)
            gbnf_visit(&walk, rule, starts, calls);
        if (walk.found)
            gbnf_fail(in, ERROR_UNSUPPORTED,
                      "a rule begins with itself (left recursion): write it as a repetition");
        else if (gbnf_counts_empty(&walk))
            gbnf_fail(in, ERROR_BUSY, "a count above 1000 of an element that may be empty");
    }
    mem_free(calls);
    mem_free(starts);
    mem_free(walk.is_empty);
    mem_free(walk.visiting);
    mem_free(walk.seen);
}

static void gbnf_read(struct gbnf *in)
{
    program_node(in->program, NODE_SPLIT); /* node 0 leads nowhere */
    for (gbnf_skip(in, true); !in->code && in->at < in->end; gbnf_skip(in, true))
        gbnf_rule(in);
    const struct gbnf_name *root = NULL;
    for (uint32_t i = 0; !in->code && i < in->n_names; i++) {
        const struct gbnf_name *name = &in->names[i];
        if (!name->is_defined && !in->code)
            in->code = error_set(in->err, ERROR_INVALID, "rule '%.*s' is used and not there",
                                 (int)(name->size < 64 ? name->size : 64), name->data);
        if (name->size == 4 && memcmp(name->data, "root", 4) == 0)
            root = name;
    }
    if (!in->code && !root)
        gbnf_fail(in, ERROR_INVALID, "the rule 'root' is missing");
    if (!in->code && !in->program->code) {
        in->program->root = root->rule;
        gbnf_check(in);
    }
}

enum error_code gbnf_compile(const char *text, size_t size, struct grammar *program,
                             struct error *err)
{
    struct gbnf in = {
        .begin = text, .at = text, .end = text + size, .program = program, .err = err};
    in.encoder.program = program;
    gbnf_read(&in);
    encoder_deinit(&in.encoder);
    mem_free(in.names);
    return in.code;
}
