/* Automata over code points as nodes of a program, which reads bytes: as they are (UTF-8), or as
 * they stand between the quotes of a JSON string. What several places need is made once.
 *
 * Failures stay in the program (program.h). */
#pragma once

#include "grammar/dfa.h"
#include "grammar/program.h"

enum encoding { ENCODE_RAW, ENCODE_JSON };

struct encoder {
    struct grammar *program;
    struct word_table tails; /* what is shared: kind, low, high, digits, target */
    uint32_t *tail_nodes;
    uint32_t tails_room;
    struct grammar_edge *edges; /* of the node at work */
    uint32_t n_edges, edges_room;
};

void encoder_deinit(struct encoder *encoder);

/* The automaton's entry. At the end of a string with label i it goes on at ends[i - 1]: without a
 * byte if raw, behind the closing quote if JSON. `guards`: NULL, or the guard + 1 of each state. */
uint32_t encode_dfa(struct encoder *encoder, const struct dfa *dfa, enum encoding encoding,
                    const uint32_t *ends, const uint32_t *guards);
/* Fills a node of kind BYTES: any one code point, then `target`; and behind a quote (JSON) `end`,
 * unless it is 0. */
void encode_any(struct encoder *encoder, uint32_t node, enum encoding encoding, uint32_t target,
                uint32_t end);
