/* A regular expression as a tree, whose nodes stand in one array. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum regex_kind {
    REGEX_EMPTY,
    REGEX_SET,    /* one code point of ranges[first …] */
    REGEX_JOIN,   /* left, then right */
    REGEX_EITHER, /* left or right */
    REGEX_REPEAT, /* left, n_min to n_max times */
    REGEX_BEGIN,  /* ^ */
    REGEX_END,    /* $ */
};

enum { REGEX_MANY = UINT32_MAX };

struct regex_node {
    enum regex_kind kind;
    uint32_t left, right;
    uint32_t n_min, n_max;
    uint32_t first, n_ranges;
};

struct regex_range {
    uint32_t low, high; /* both in it */
};

struct regex_tree {
    struct regex_node *nodes;
    uint32_t n_nodes, nodes_room;
    struct regex_range *ranges;
    uint32_t n_ranges, ranges_room;
    uint32_t root;
};

enum error_code regex_parse(const char *text, size_t size, struct regex_tree *out,
                            struct error *err);
void regex_tree_deinit(struct regex_tree *tree);

/* Sorted, joined, and inverted if that is wanted: the ranges from `first` on. False: no memory. */
bool regex_set_finish(struct regex_tree *tree, uint32_t first, bool is_inverted);
bool regex_range_add(struct regex_tree *tree, uint32_t low, uint32_t high);
/* The ranges of \d, \w and \s (`letter`), or of what is none of them (in capitals). */
bool regex_class_add(struct regex_tree *tree, char letter);
