#include "grammar/number.h"

#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

bool decimal_read(const char *text, size_t size, struct decimal *out)
{
    const char *at = text, *end = text + size;
    bool behind_point = false;
    long exponent = 0;
    *out = (struct decimal){.is_negative = size && *at == '-'};
    for (at += out->is_negative; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            behind_point = true;
            continue;
        }
        if (*at == '0' && !out->n_digits) {
            out->n_whole -= behind_point;
            continue;
        }
        if (out->n_digits == LIMIT_GRAMMAR_DIGITS)
            return false;
        out->digits[out->n_digits++] = *at;
        out->n_whole += !behind_point;
    }
    if (at < end)
        exponent = strtol(at + 1, NULL, 10);
    while (out->n_digits && out->digits[out->n_digits - 1] == '0')
        out->n_digits--;
    if (!out->n_digits) {
        *out = (struct decimal){0};
        return true;
    }
    if (exponent > LIMIT_GRAMMAR_DIGITS || exponent < -LIMIT_GRAMMAR_DIGITS)
        return false;
    out->n_whole += (int)exponent;
    return out->n_whole <= LIMIT_GRAMMAR_DIGITS && out->n_whole >= -LIMIT_GRAMMAR_DIGITS;
}

bool decimal_is_integer(const struct decimal *value)
{
    return (int)value->n_digits <= value->n_whole || !value->n_digits;
}

bool decimal_as_u32(const struct decimal *value, uint32_t *out)
{
    uint64_t sum = 0;
    if (value->is_negative || !decimal_is_integer(value) || value->n_whole > 9)
        return false;
    for (int i = 0; i < value->n_whole; i++)
        sum = sum * 10 + (unsigned)(i < (int)value->n_digits ? value->digits[i] - '0' : 0);
    *out = (uint32_t)sum;
    return true;
}

/* ---- the text of a number, letter by letter ---- */

/* The ranges of the alphabet: before and between what counts, then '-', '.', and each digit. */
static const uint32_t number_bounds[] = {0,   '-', '.', '/', '0', '1', '2', '3',
                                         '4', '5', '6', '7', '8', '9', ':'};
enum {
    NUMBER_RANGES = sizeof number_bounds / sizeof *number_bounds,
    NUMBER_MINUS = 1,
    NUMBER_POINT = 2,
    NUMBER_ZERO = 4
};

/* Where in its text a number is. */
enum number_phase {
    PHASE_START,
    PHASE_SIGNED,
    PHASE_ZERO,
    PHASE_WHOLE,
    PHASE_POINT,
    PHASE_FRACTION
};

static bool number_phase_step(enum number_phase from, uint32_t range, enum number_phase *to)
{
    const bool is_digit = range >= NUMBER_ZERO && range < NUMBER_ZERO + 10;
    if (range == NUMBER_MINUS && from == PHASE_START)
        *to = PHASE_SIGNED;
    else if (range == NUMBER_POINT && (from == PHASE_ZERO || from == PHASE_WHOLE))
        *to = PHASE_POINT;
    else if (is_digit && from <= PHASE_SIGNED)
        *to = range == NUMBER_ZERO ? PHASE_ZERO : PHASE_WHOLE;
    else if (is_digit && from == PHASE_WHOLE)
        *to = PHASE_WHOLE;
    else if (is_digit && from >= PHASE_POINT)
        *to = PHASE_FRACTION;
    else
        return false;
    return true;
}

static bool number_phase_ends(enum number_phase phase)
{
    return phase == PHASE_ZERO || phase == PHASE_WHOLE || phase == PHASE_FRACTION;
}

/* ---- compared with a value: its size digit by digit, then its sign ---- */

enum {
    COMPARE_PHASE,
    COMPARE_NEGATIVE,
    COMPARE_PLACE,
    COMPARE_ORDER,
    COMPARE_NONZERO,
    COMPARE_WORDS
};

struct number_comparison {
    const struct decimal *value;
    unsigned relations;
};

/* The value's digit at a place, 0 being the first before the point if n_whole is above 0, else the
 * first behind it. */
static int number_digit_of(const struct decimal *value, int place)
{
    const int index = value->n_whole > 0 ? place : place + value->n_whole;
    return index >= 0 && index < (int)value->n_digits ? value->digits[index] - '0' : 0;
}

static uint32_t number_whole_of(const struct decimal *value)
{
    return value->n_whole > 0 ? (uint32_t)value->n_whole : 0;
}

static uint32_t number_places_of(const struct decimal *value)
{
    const int places =
        value->n_whole > 0 ? (int)value->n_digits : (int)value->n_digits - value->n_whole;
    return places > 0 ? (uint32_t)places : 0;
}

/* The whole part has ended: fewer digits are less, more are more. */
static void number_end_whole(const struct decimal *value, uint32_t *state)
{
    const uint32_t whole = number_whole_of(value);
    if (state[COMPARE_PLACE] != whole)
        state[COMPARE_ORDER] = state[COMPARE_PLACE] < whole ? NUMBER_LESS : NUMBER_MORE;
    state[COMPARE_PLACE] = whole;
}

static bool number_compare_step(const void *context, const uint32_t *from, uint32_t range,
                                uint32_t *to)
{
    const struct decimal *value = ((const struct number_comparison *)context)->value;
    enum number_phase phase;
    if (!number_phase_step((enum number_phase)from[COMPARE_PHASE], range, &phase))
        return false;
    memcpy(to, from, COMPARE_WORDS * sizeof *to);
    to[COMPARE_PHASE] = phase;
    if (phase == PHASE_SIGNED)
        to[COMPARE_NEGATIVE] = 1;
    if (phase == PHASE_POINT)
        number_end_whole(value, to);
    if (range < NUMBER_ZERO)
        return true;
    const int digit = (int)(range - NUMBER_ZERO);
    to[COMPARE_NONZERO] |= digit != 0;
    if (phase == PHASE_ZERO)
        return true; /* no place: 0 has no digits */
    const uint32_t last =
        phase == PHASE_WHOLE ? number_whole_of(value) + 1 : number_places_of(value) + 1;
    if (to[COMPARE_ORDER] == NUMBER_EQUAL &&
        (phase == PHASE_FRACTION || from[COMPARE_PLACE] < number_whole_of(value))) {
        const int other = number_digit_of(value, (int)from[COMPARE_PLACE]);
        if (digit != other)
            to[COMPARE_ORDER] = digit < other ? NUMBER_LESS : NUMBER_MORE;
    }
    if (phase == PHASE_FRACTION && to[COMPARE_ORDER] != NUMBER_EQUAL)
        to[COMPARE_PLACE] = last; /* decided */
    else if (to[COMPARE_PLACE] < last)
        to[COMPARE_PLACE]++;
    return true;
}

static uint32_t number_compare_label(const void *context, const uint32_t *state)
{
    const struct number_comparison *comparison = context;
    const struct decimal *value = comparison->value;
    const enum number_phase phase = (enum number_phase)state[COMPARE_PHASE];
    uint32_t ended[COMPARE_WORDS];
    if (!number_phase_ends(phase))
        return 0;
    memcpy(ended, state, sizeof ended);
    if (phase != PHASE_FRACTION)
        number_end_whole(value, ended);
    if (ended[COMPARE_ORDER] == NUMBER_EQUAL && ended[COMPARE_PLACE] < number_places_of(value))
        ended[COMPARE_ORDER] = NUMBER_LESS; /* the value has more digits */
    uint32_t order = ended[COMPARE_ORDER];
    const bool is_negative = state[COMPARE_NEGATIVE] && state[COMPARE_NONZERO];
    if (is_negative != value->is_negative)
        order = is_negative ? NUMBER_LESS : NUMBER_MORE;
    else if (is_negative && order != NUMBER_EQUAL)
        order = order == NUMBER_LESS ? NUMBER_MORE : NUMBER_LESS;
    return (order & comparison->relations) != 0;
}

enum error_code number_compared(const struct decimal *value, unsigned relations, struct dfa **out,
                                struct error *err)
{
    const struct number_comparison comparison = {value, relations};
    const uint32_t start[COMPARE_WORDS] = {[COMPARE_ORDER] = NUMBER_EQUAL};
    const struct dfa_source source = {&comparison,         number_bounds, NUMBER_RANGES,
                                      COMPARE_WORDS,       start,         number_compare_step,
                                      number_compare_label};
    return dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, out, err);
}

/* ---- multiples: the remainder of the digits so far, and how many stand behind the point ---- */

enum { MULTIPLE_PHASE, MULTIPLE_REST, MULTIPLE_FRACTION, MULTIPLE_WORDS };

struct number_multiples {
    uint32_t divisor; /* of the number with `fraction` places behind the point, without it */
    uint32_t fraction;
};

static bool number_multiple_step(const void *context, const uint32_t *from, uint32_t range,
                                 uint32_t *to)
{
    const struct number_multiples *multiples = context;
    enum number_phase phase;
    if (!number_phase_step((enum number_phase)from[MULTIPLE_PHASE], range, &phase))
        return false;
    memcpy(to, from, MULTIPLE_WORDS * sizeof *to);
    to[MULTIPLE_PHASE] = phase;
    if (range < NUMBER_ZERO)
        return true;
    const uint32_t digit = range - NUMBER_ZERO;
    if (phase == PHASE_FRACTION && from[MULTIPLE_FRACTION] == multiples->fraction)
        return digit == 0; /* behind the last place that a multiple can have */
    to[MULTIPLE_REST] =
        (uint32_t)(((uint64_t)from[MULTIPLE_REST] * 10 + digit) % multiples->divisor);
    to[MULTIPLE_FRACTION] += phase == PHASE_FRACTION;
    return true;
}

static uint32_t number_multiple_label(const void *context, const uint32_t *state)
{
    const struct number_multiples *multiples = context;
    if (!number_phase_ends((enum number_phase)state[MULTIPLE_PHASE]))
        return 0;
    uint64_t rest = state[MULTIPLE_REST];
    for (uint32_t i = state[MULTIPLE_FRACTION]; i < multiples->fraction; i++)
        rest = rest * 10 % multiples->divisor;
    return rest == 0;
}

enum error_code number_multiple(const struct decimal *value, struct dfa **out, struct error *err)
{
    struct number_multiples multiples = {0};
    struct decimal scaled = *value;
    if (!decimal_is_integer(value)) {
        multiples.fraction = (uint32_t)((int)value->n_digits - value->n_whole);
        scaled.n_whole = (int)value->n_digits;
    }
    if (!decimal_as_u32(&scaled, &multiples.divisor) ||
        (uint64_t)multiples.divisor * (multiples.fraction + 3) > LIMIT_GRAMMAR_DFA_STATES)
        return error_set(err, ERROR_BUSY, "the multiple's digits need too many states");
    const uint32_t start[MULTIPLE_WORDS] = {0};
    const struct dfa_source source = {&multiples,           number_bounds, NUMBER_RANGES,
                                      MULTIPLE_WORDS,       start,         number_multiple_step,
                                      number_multiple_label};
    return dfa_explore(&source, LIMIT_GRAMMAR_DFA_STATES, out, err);
}
