/* A compiled grammar: a pushdown automaton over bytes.
 *
 * A rule is a part of the program that is called and returns; its frame has one register, 0 at
 * first. A node says what may come next:
 *   BYTES   a byte of one of its edges, then the edge's target; where it has a guard, only as long
 *           as a member that can still come lies behind it
 *   SPLIT   any of its targets, without a byte
 *   CALL    a rule, then `then`
 *   RETURN  the end of its rule
 *   LOOP    its loop again while the register is below n_max, or its exit once it is n_min
 *   COUNT   one more time round: the register rises, then its loop's `head`. It stays where no
 *           bound lies above it
 *   OBJECT  a key, while a member may still come, or the end, once none is missing
 *   MEMBER  a key was read whole: its label is noted in the register, then `then`
 *
 * An object's labels are its named members first, which come once each, then kinds of other keys.
 *
 * While it is made, `code` keeps the first failure, after which all that is added is node 0: a
 * maker adds what it needs and checks once. */
#pragma once

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/word_table.h"

enum node_kind {
    NODE_BYTES,
    NODE_SPLIT,
    NODE_CALL,
    NODE_RETURN,
    NODE_LOOP,
    NODE_COUNT,
    NODE_OBJECT,
    NODE_MEMBER,
};

enum { GRAMMAR_MANY = UINT32_MAX };

struct grammar_node {
    uint8_t kind;
    bool is_live;      /* an end can be reached */
    bool is_plain;     /* any character of a string that needs no escape leads back to it */
    bool is_calm;      /* so do all calm bytes (vocabulary.h) */
    uint32_t first, n; /* BYTES: edges; SPLIT: targets; CALL: n is the rule */
    uint32_t then;     /* CALL, MEMBER, OBJECT: its end */
    uint32_t loop;     /* + 1; of LOOP, COUNT and what stands in one */
    uint32_t object, label, guard; /* OBJECT: `first` is the key; guard + 1 of BYTES */
};

struct grammar_edge {
    uint8_t low, high;
    uint32_t target;
};

struct grammar_loop {
    uint32_t n_min, n_max, again, exit, head;
};

struct grammar_object {
    uint32_t n_members, n_labels, n_min, n_max;
    uint32_t rules;    /* in `words`: the value's rule of each label */
    uint32_t required; /* in `words`: a bit for each label */
    uint32_t live;     /* the same: labels whose value can be written */
    uint32_t n_words;  /* of such a set */
};

struct grammar_guard {
    uint32_t object, labels; /* in `words`: those that lie behind it */
};

struct grammar {
    struct grammar_node *nodes;
    struct grammar_edge *edges;
    uint32_t *targets, *rules, *words;
    struct grammar_loop *loops;
    struct grammar_object *objects;
    struct grammar_guard *guards;
    uint32_t n_nodes, n_edges, n_targets, n_rules, n_words, n_loops, n_objects, n_guards;
    uint32_t nodes_room, edges_room, targets_room, rules_room, words_room, loops_room, objects_room,
        guards_room;
    uint32_t root; /* a rule */
    uint8_t class_of[256];
    uint8_t example[256]; /* a byte of each class */
    uint32_t n_classes;
    uint32_t loop; /* + 1: of what is added now */
    enum error_code code;
};

uint32_t program_node(struct grammar *program, enum node_kind kind);
uint32_t program_return(struct grammar *program);
uint32_t program_call(struct grammar *program, uint32_t rule, uint32_t then);
uint32_t program_split(struct grammar *program, const uint32_t *targets, uint32_t n);
uint32_t program_either(struct grammar *program, uint32_t a, uint32_t b);
/* The edges are copied; once for each node. */
void program_set_edges(struct grammar *program, uint32_t node, const struct grammar_edge *edges,
                       uint32_t n);
uint32_t program_byte(struct grammar *program, char byte, uint32_t target);
uint32_t program_text(struct grammar *program, const char *text, uint32_t target);
/* A loop; what is added until program_loop_end() stands in it. */
uint32_t program_loop(struct grammar *program, uint32_t n_min, uint32_t n_max, uint32_t exit);
uint32_t program_loop_node(struct grammar *program, uint32_t loop, enum node_kind kind);
void program_loop_end(struct grammar *program);
/* A rule without an entry yet: */
uint32_t program_rule(struct grammar *program);
void program_set_rule(struct grammar *program, uint32_t rule, uint32_t entry);
/* n words of zeros; where they begin. */
uint32_t program_words(struct grammar *program, uint32_t n);
uint32_t program_object(struct grammar *program, const struct grammar_object *object);
uint32_t program_guard(struct grammar *program, struct grammar_guard guard);

/* What can be ended, and the classes of bytes. ERROR_INVALID: nothing can be written at all. */
enum error_code program_finish(struct grammar *program, struct error *err);
