/* Sets of numbers as automata over their plain decimal text: -?digits, perhaps with a fraction, no
 * exponent. An automaton tells a value from others whatever zeros end its fraction; it accepts only
 * such texts. Labels are 1. Pure. */
#pragma once

#include "grammar/dfa.h"

/* A JSON number's value: digits without leading or trailing zeros, of which n_whole stand before
 * the point (negative: zeros behind the point first). No digits: 0. */
enum { LIMIT_GRAMMAR_DIGITS = 400 };
struct decimal {
    bool is_negative;
    int n_whole;
    unsigned n_digits;
    char digits[LIMIT_GRAMMAR_DIGITS];
};

/* `text` is a JSON number. False: too many digits. */
bool decimal_read(const char *text, size_t size, struct decimal *out);
bool decimal_is_integer(const struct decimal *value);
/* ERROR_BUSY where it is none or too large: */
bool decimal_as_u32(const struct decimal *value, uint32_t *out);

enum number_relation { NUMBER_LESS = 1, NUMBER_EQUAL = 2, NUMBER_MORE = 4 };
/* Numbers that stand in one of `relations` to the value. */
enum error_code number_compared(const struct decimal *value, unsigned relations, struct dfa **out,
                                struct error *err);
/* Whole multiples; the value is above 0. ERROR_BUSY: its digits make too many states. */
enum error_code number_multiple(const struct decimal *value, struct dfa **out, struct error *err);
/* By regular expression: integers however written; those without a fraction; those without needless
 * zeros; all numbers, and all with an exponent, too, that a double can hold. */
#define NUMBER_INTEGERS "-?(0|[1-9][0-9]*)(\\.0+)?"
#define NUMBER_WHOLE "-?(0|[1-9][0-9]*)"
#define NUMBER_SHORTEST "-?(0|[1-9][0-9]*)(\\.[0-9]*[1-9])?"
#define NUMBER_PLAIN "-?(0|[1-9][0-9]*)(\\.[0-9]+)?"
#define NUMBER_ANY                                                                                 \
    "-?(0|[1-9][0-9]*)(\\.[0-9]+)?|"                                                               \
    "-?[0-9](\\.[0-9]+)?[eE](-[0-9]{1,3}|\\+?([0-9]{1,2}|[12][0-9][0-9]|30[0-7]))"
