#include "grammar/encode.h"

#include "base/mem.h"

#include <string.h>

void encoder_deinit(struct encoder *encoder)
{
    word_table_deinit(&encoder->tails);
    mem_free(encoder->tail_nodes);
    mem_free(encoder->edges);
    *encoder = (struct encoder){0};
}

static void encode_edge(struct encoder *encoder, unsigned low, unsigned high, uint32_t target)
{
    if (encoder->program->code || low > high)
        return;
    if (encoder->n_edges == encoder->edges_room) {
        const uint32_t room = encoder->edges_room ? encoder->edges_room * 2 : 64;
        struct grammar_edge *edges = mem_resize(encoder->edges, room, sizeof *edges);
        if (!edges) {
            encoder->program->code = ERROR_NO_MEMORY;
            return;
        }
        encoder->edges = edges;
        encoder->edges_room = room;
    }
    encoder->edges[encoder->n_edges++] = (struct grammar_edge){(uint8_t)low, (uint8_t)high, target};
}

/* The edges that were added since there were `from` become the node's. */
static void encode_take_edges(struct encoder *encoder, uint32_t node, uint32_t from)
{
    program_set_edges(encoder->program, node, encoder->edges + from, encoder->n_edges - from);
    encoder->n_edges = from;
}

/* ---- numbers written in several digits: of 6 bits (UTF-8), or of 4 (hexadecimal) ---- */

enum tail_kind { TAIL_UTF8, TAIL_HEX, TAIL_SURROGATE };

static void encode_digit(struct encoder *encoder, enum tail_kind kind, unsigned low, unsigned high,
                         uint32_t target)
{
    if (kind == TAIL_UTF8) {
        encode_edge(encoder, 0x80 | low, 0x80 | high, target);
        return;
    }
    if (low < 10)
        encode_edge(encoder, '0' + low, '0' + (high < 10 ? high : 9), target);
    if (high >= 10) {
        const unsigned from = low < 10 ? 0 : low - 10;
        encode_edge(encoder, 'a' + from, 'a' + high - 10, target);
        encode_edge(encoder, 'A' + from, 'A' + high - 10, target);
    }
}

static uint32_t encode_tail(struct encoder *encoder, enum tail_kind kind, uint32_t low,
                            uint32_t high, unsigned digits, uint32_t target);

/* Edges for the first of `digits` digits of the numbers from low to high. */
static void encode_digits(struct encoder *encoder, enum tail_kind kind, uint32_t low, uint32_t high,
                          unsigned digits, uint32_t target)
{
    const unsigned shift = (kind == TAIL_UTF8 ? 6 : 4) * (digits - 1);
    const uint32_t rest = (1u << shift) - 1;
    uint32_t first = low >> shift, last = high >> shift;
    if (digits == 1) {
        encode_digit(encoder, kind, first, last, target);
        return;
    }
    if (first < last && (low & rest) != 0) {
        const uint32_t tail = encode_tail(encoder, kind, low & rest, rest, digits - 1, target);
        encode_digit(encoder, kind, first, first, tail);
        low = ++first << shift;
    }
    if (first < last && (high & rest) != rest) {
        const uint32_t tail = encode_tail(encoder, kind, 0, high & rest, digits - 1, target);
        encode_digit(encoder, kind, last, last, tail);
        high = (last-- << shift) - 1;
    }
    const uint32_t tail = encode_tail(encoder, kind, low & rest, high & rest, digits - 1, target);
    encode_digit(encoder, kind, first, last, tail);
}

static uint32_t encode_tail_new(struct encoder *encoder, enum tail_kind kind, uint32_t low,
                                uint32_t high, unsigned digits, uint32_t target)
{
    struct grammar *program = encoder->program;
    const uint32_t node = program_node(program, NODE_BYTES);
    const uint32_t from = encoder->n_edges;
    /* What only leads to the target may stand where the target may. */
    if (!program->code)
        program->nodes[node].guard = program->nodes[target].guard;
    if (kind == TAIL_SURROGATE) {
        const uint32_t hex = encode_tail(encoder, TAIL_HEX, low, high, digits, target);
        const uint32_t letter = program_byte(program, 'u', hex);
        if (!program->code)
            program->nodes[letter].guard = program->nodes[target].guard;
        encode_edge(encoder, '\\', '\\', letter);
    } else {
        encode_digits(encoder, kind, low, high, digits, target);
    }
    encode_take_edges(encoder, node, from);
    return node;
}

static uint32_t encode_tail(struct encoder *encoder, enum tail_kind kind, uint32_t low,
                            uint32_t high, unsigned digits, uint32_t target)
{
    const uint32_t loop = encoder->program->loop;
    const uint32_t name[6] = {kind, low, high, digits, target, loop};
    const uint32_t before = encoder->tails.count;
    const uint32_t number = word_table_add(&encoder->tails, name, 6, LIMIT_GRAMMAR_NODES);
    if (encoder->program->code)
        return 0;
    if (number != WORD_TABLE_NONE && number < before)
        return encoder->tail_nodes[number];
    if (number != WORD_TABLE_NONE && number >= encoder->tails_room) {
        const uint32_t room = number * 2 + 64;
        uint32_t *nodes = mem_resize(encoder->tail_nodes, room, sizeof *nodes);
        if (nodes) {
            encoder->tail_nodes = nodes;
            encoder->tails_room = room;
        }
    }
    if (number == WORD_TABLE_NONE || number >= encoder->tails_room) {
        encoder->program->code = ERROR_NO_MEMORY;
        return 0;
    }
    const uint32_t node = encode_tail_new(encoder, kind, low, high, digits, target);
    encoder->tail_nodes[number] = node;
    return node;
}

/* ---- UTF-8 ---- */

struct utf8_length {
    uint32_t low, high;
    unsigned lead, n_tails;
};
static const struct utf8_length utf8_lengths[] = {
    {0, 0x7f, 0, 0},           {0x80, 0x7ff, 0xc0, 1},       {0x800, 0xd7ff, 0xe0, 2},
    {0xe000, 0xffff, 0xe0, 2}, {0x10000, 0x10ffff, 0xf0, 3},
};

static void encode_utf8_part(struct encoder *encoder, const struct utf8_length *length,
                             uint32_t low, uint32_t high, uint32_t target)
{
    if (length->n_tails == 0) {
        encode_edge(encoder, low, high, target);
        return;
    }
    const unsigned shift = 6 * length->n_tails;
    const uint32_t rest = (1u << shift) - 1;
    for (uint32_t lead = low >> shift; lead <= high >> shift; lead++) {
        const uint32_t from = lead == low >> shift ? low & rest : 0;
        uint32_t to = lead == high >> shift ? high & rest : rest, last = lead;
        /* Leads with all their tails share an edge. */
        while (from == 0 && to == rest && last < high >> shift &&
               (last + 1 < high >> shift || (high & rest) == rest))
            last++;
        encode_edge(encoder, length->lead | lead, length->lead | last,
                    encode_tail(encoder, TAIL_UTF8, from, to, length->n_tails, target));
        lead = last;
    }
}

static void encode_utf8(struct encoder *encoder, uint32_t low, uint32_t high, uint32_t target)
{
    for (size_t i = 0; i < sizeof utf8_lengths / sizeof *utf8_lengths; i++) {
        const struct utf8_length *length = &utf8_lengths[i];
        const uint32_t from = low > length->low ? low : length->low;
        const uint32_t to = high < length->high ? high : length->high;
        if (from <= to)
            encode_utf8_part(encoder, length, from, to, target);
    }
}

/* ---- JSON's escapes ---- */

/* Edges for the four digits behind \u. Above U+FFFF two such follow each other. */
static void encode_unicode(struct encoder *encoder, uint32_t low, uint32_t high, uint32_t target)
{
    static const uint32_t parts[][2] = {{0, 0x1f}, {0x7f, 0xd7ff}, {0xe000, 0xffff}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const uint32_t from = low > parts[i][0] ? low : parts[i][0];
        const uint32_t to = high < parts[i][1] ? high : parts[i][1];
        if (from <= to)
            encode_digits(encoder, TAIL_HEX, from, to, 4, target);
    }
    if (high < 0x10000)
        return;
    const uint32_t from = (low > 0x10000 ? low : 0x10000) - 0x10000, to = high - 0x10000;
    for (uint32_t pair = from >> 10; pair <= to >> 10; pair++) {
        const uint32_t first = pair == from >> 10 ? from & 0x3ff : 0;
        const uint32_t last = pair == to >> 10 ? to & 0x3ff : 0x3ff;
        uint32_t end = pair;
        while (first == 0 && last == 0x3ff && end < to >> 10 &&
               (end + 1 < to >> 10 || (to & 0x3ff) == 0x3ff))
            end++;
        const uint32_t tail =
            encode_tail(encoder, TAIL_SURROGATE, 0xdc00 + first, 0xdc00 + last, 4, target);
        encode_digits(encoder, TAIL_HEX, 0xd800 + pair, 0xd800 + end, 4, tail);
        pair = end;
    }
}

static const char short_escapes[][2] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                        {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};

struct encode_range {
    uint32_t low, high, target;
};

/* The edges since `from` as a node, which may stand where one of the targets in `set` may. */
static uint32_t encode_guarded(struct encoder *encoder, uint32_t from,
                               const struct encode_range *ranges, uint32_t n, const bool *leads)
{
    struct grammar *program = encoder->program;
    const uint32_t node = program_node(program, NODE_BYTES);
    encode_take_edges(encoder, node, from);
    uint32_t object = 0, labels = 0, n_words = 0;
    for (uint32_t i = 0; i < n && !program->code; i++) {
        const uint32_t guard = program->nodes[ranges[i].target].guard;
        if (!leads[i] || !guard)
            continue;
        if (!n_words) {
            object = program->guards[guard - 1].object;
            n_words = program->objects[object].n_words;
            labels = program_words(program, n_words);
        }
        for (uint32_t k = 0; k < n_words && !program->code; k++)
            program->words[labels + k] |= program->words[program->guards[guard - 1].labels + k];
    }
    if (n_words) {
        const uint32_t guard = program_guard(program, (struct grammar_guard){object, labels});
        if (!program->code)
            program->nodes[node].guard = guard + 1;
    }
    return node;
}

/* The node behind a backslash; 0: no escape may come. */
static uint32_t encode_escapes(struct encoder *encoder, const struct encode_range *ranges,
                               uint32_t n)
{
    const uint32_t from = encoder->n_edges;
    bool *leads = mem_new_array((size_t)n + 1, sizeof *leads);
    if (!leads) {
        encoder->program->code = ERROR_NO_MEMORY;
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t before = encoder->n_edges;
        encode_unicode(encoder, ranges[i].low, ranges[i].high, ranges[i].target);
        leads[i] = encoder->n_edges > before;
    }
    if (encoder->n_edges > from) {
        const uint32_t unicode = encode_guarded(encoder, from, ranges, n, leads);
        encode_edge(encoder, 'u', 'u', unicode);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof short_escapes / sizeof *short_escapes; k++) {
            const uint32_t code_point = (uint8_t)short_escapes[k][1];
            if (ranges[i].low > code_point || code_point > ranges[i].high)
                continue;
            encode_edge(encoder, (uint8_t)short_escapes[k][0], (uint8_t)short_escapes[k][0],
                        ranges[i].target);
            leads[i] = true;
        }
    }
    const uint32_t node =
        encoder->n_edges > from ? encode_guarded(encoder, from, ranges, n, leads) : 0;
    mem_free(leads);
    return node;
}

/* Edges for one code point of the ranges. */
static void encode_ranges(struct encoder *encoder, const struct encode_range *ranges, uint32_t n,
                          enum encoding encoding)
{
    static const uint32_t plain[][2] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, CODE_POINT_END - 1}};
    if (encoding == ENCODE_RAW) {
        for (uint32_t i = 0; i < n; i++)
            encode_utf8(encoder, ranges[i].low, ranges[i].high, ranges[i].target);
        return;
    }
    const uint32_t escapes = encode_escapes(encoder, ranges, n);
    if (escapes)
        encode_edge(encoder, '\\', '\\', escapes);
    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
            const uint32_t low = ranges[i].low > plain[k][0] ? ranges[i].low : plain[k][0];
            const uint32_t high = ranges[i].high < plain[k][1] ? ranges[i].high : plain[k][1];
            if (low <= high)
                encode_utf8(encoder, low, high, ranges[i].target);
        }
    }
}

void encode_any(struct encoder *encoder, uint32_t node, enum encoding encoding, uint32_t target,
                uint32_t end)
{
    const struct encode_range all = {0, CODE_POINT_END - 1, target};
    const uint32_t from = encoder->n_edges;
    encode_ranges(encoder, &all, 1, encoding);
    if (end)
        encode_edge(encoder, '"', '"', end);
    encode_take_edges(encoder, node, from);
}

/* ---- whole automata ---- */

/* The ranges of a state that lead somewhere, neighbours with one target joined. `numbers`: the
 * node of each state. *is_plain: all that needs no escape leads back. */
static uint32_t encode_state_ranges(const struct dfa *dfa, uint32_t state, const uint32_t *numbers,
                                    struct encode_range *ranges, bool *is_plain)
{
    uint32_t n = 0;
    *is_plain = true;
    for (uint32_t range = 0; range < dfa->n_ranges; range++) {
        const uint32_t next = dfa->next[(size_t)state * dfa->n_ranges + range];
        const uint32_t low = dfa->bounds[range];
        const uint32_t high =
            (range + 1 < dfa->n_ranges ? dfa->bounds[range + 1] : CODE_POINT_END) - 1;
        const bool is_escaped = high < 0x20 || (low == high && (low == '"' || low == '\\'));
        *is_plain &= next == state || is_escaped;
        if (!next)
            continue;
        if (n && ranges[n - 1].high + 1 == low && ranges[n - 1].target == numbers[next])
            ranges[n - 1].high = high;
        else
            ranges[n++] = (struct encode_range){low, high, numbers[next]};
    }
    return n;
}

static void encode_state(struct encoder *encoder, const struct dfa *dfa, uint32_t state,
                         enum encoding encoding, const uint32_t *numbers, const uint32_t *ends,
                         struct encode_range *ranges)
{
    struct grammar *program = encoder->program;
    bool is_plain;
    const uint32_t n = encode_state_ranges(dfa, state, numbers, ranges, &is_plain);
    const uint32_t from = encoder->n_edges, label = dfa->labels[state];
    const bool splits = encoding == ENCODE_RAW && label;
    encode_ranges(encoder, ranges, n, encoding);
    if (encoding == ENCODE_JSON && label)
        encode_edge(encoder, '"', '"', ends[label - 1]);
    const uint32_t bytes = splits ? program_node(program, NODE_BYTES) : numbers[state];
    encode_take_edges(encoder, bytes, from);
    if (program->code)
        return;
    program->nodes[bytes].is_plain = is_plain && encoding == ENCODE_JSON;
    if (splits) {
        const uint32_t split = program_either(program, bytes, ends[label - 1]);
        if (!program->code)
            program->nodes[numbers[state]] = program->nodes[split];
    }
}

uint32_t encode_dfa(struct encoder *encoder, const struct dfa *dfa, enum encoding encoding,
                    const uint32_t *ends, const uint32_t *guards)
{
    struct grammar *program = encoder->program;
    uint32_t *numbers = mem_new_array(dfa->n_states, sizeof *numbers);
    struct encode_range *ranges = mem_new_array(dfa->n_ranges, sizeof *ranges);
    if (!numbers || !ranges)
        program->code = program->code ? program->code : ERROR_NO_MEMORY;
    uint32_t entry = 0;
    if (!program->code && dfa_is_empty(dfa)) {
        entry = program_split(program, NULL, 0); /* leads nowhere */
    } else if (!program->code) {
        for (uint32_t state = 1; state < dfa->n_states; state++) {
            numbers[state] = program_node(program, NODE_BYTES);
            if (!program->code && guards)
                program->nodes[numbers[state]].guard = guards[state];
        }
        for (uint32_t state = 1; !program->code && state < dfa->n_states; state++)
            encode_state(encoder, dfa, state, encoding, numbers, ends, ranges);
        entry = numbers[dfa->start];
    }
    mem_free(numbers);
    mem_free(ranges);
    return program->code ? 0 : entry;
}
