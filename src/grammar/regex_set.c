/* Sets of code points in a regular expression. */
#include "base/mem.h"
#include "grammar/dfa.h"
#include "grammar/regex_parse.h"

#include <stdlib.h>

bool regex_range_add(struct regex_tree *tree, uint32_t low, uint32_t high)
{
    if (tree->n_ranges == tree->ranges_room) {
        const uint32_t room = tree->ranges_room ? tree->ranges_room * 2 : 32;
        struct regex_range *ranges = mem_resize(tree->ranges, room, sizeof *ranges);
        if (!ranges)
            return false;
        tree->ranges = ranges;
        tree->ranges_room = room;
    }
    tree->ranges[tree->n_ranges++] = (struct regex_range){low, high};
    return true;
}

static int regex_range_compare(const void *a, const void *b)
{
    const struct regex_range *first = a, *second = b;
    return (first->low > second->low) - (first->low < second->low);
}

bool regex_set_finish(struct regex_tree *tree, uint32_t first, bool is_inverted)
{
    struct regex_range *ranges = tree->ranges + first;
    const uint32_t n = tree->n_ranges - first;
    if (n)
        qsort(ranges, n, sizeof *ranges, regex_range_compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept && ranges[i].low <= ranges[kept - 1].high + 1) {
            if (ranges[i].high > ranges[kept - 1].high)
                ranges[kept - 1].high = ranges[i].high;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    tree->n_ranges = first + kept;
    if (!is_inverted)
        return true;
    /* The gaps, written where the ranges stood: gap i ends before range i begins. */
    uint32_t from = 0, gaps = 0;
    for (uint32_t i = 0; i < kept; i++) {
        const struct regex_range range = tree->ranges[first + i];
        if (range.low > from)
            tree->ranges[first + gaps++] = (struct regex_range){from, range.low - 1};
        from = range.high + 1;
    }
    tree->n_ranges = first + gaps;
    return from >= CODE_POINT_END || regex_range_add(tree, from, CODE_POINT_END - 1);
}

/* ECMAScript's WhiteSpace and LineTerminator. */
static const struct regex_range regex_blanks[] = {
    {0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff},
};
static const struct regex_range regex_word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct regex_range regex_digits[] = {{'0', '9'}};

bool regex_class_add(struct regex_tree *tree, char letter)
{
    const struct regex_range *ranges = regex_digits;
    uint32_t n = 1, from = 0;
    if (letter == 'w' || letter == 'W') {
        ranges = regex_word;
        n = sizeof regex_word / sizeof *regex_word;
    } else if (letter == 's' || letter == 'S') {
        ranges = regex_blanks;
        n = sizeof regex_blanks / sizeof *regex_blanks;
    }
    const bool is_inverted = letter < 'a';
    for (uint32_t i = 0; i < n; i++) {
        if (!is_inverted && !regex_range_add(tree, ranges[i].low, ranges[i].high))
            return false;
        if (is_inverted && !regex_range_add(tree, from, ranges[i].low - 1))
            return false;
        from = ranges[i].high + 1;
    }
    return !is_inverted || regex_range_add(tree, from, CODE_POINT_END - 1);
}
