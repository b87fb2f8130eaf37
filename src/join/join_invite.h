/* A join code, and what is left of it. Pure but for the random numbers of invite_make().
 *
 * A code is eight digits of Crockford's base 32 (no I, L, O, U), 40 bits, written K7QM-4XZD. One
 * who types it may use small letters, O for 0, I or L for 1, and put hyphens and blanks anywhere.
 *
 * It lets one node in. It is void after its time, after the first success, and after
 * LIMIT_JOIN_WRONG wrong attempts; after each of those no attempt is looked at for
 * LIMIT_JOIN_PAUSE_MS, however many are under way: so one who guesses succeeds with a chance of 3
 * in 2^40. A node has at most one code out at a time; a new one takes the old one's place.
 *
 * Times are milliseconds of a clock that does not jump (base/clock.h). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JOIN_CODE_DIGITS = 8, JOIN_CODE_TEXT = 10 };

enum invite_state {
    INVITE_NONE,
    INVITE_OPEN,
    INVITE_USED,
    INVITE_EXPIRED,
    INVITE_VOID, /* too many wrong attempts */
};

/* Zeroed: none. */
struct invite {
    uint64_t hand_paused_until_ms; /* joining by hand: see join_knock() */
    enum invite_state state;       /* as of the last call; invite_look() brings it up to date */
    uint32_t n_wrong;
    uint64_t expires_ms;
    uint64_t paused_until_ms;
    char digits[JOIN_CODE_DIGITS]; /* wiped when the code is not open any more */
};

/* 0: LIMIT_JOIN_CODE_MS. More than LIMIT_JOIN_CODE_MS_MAX is ERROR_INVALID. Writes the code, for
 * the user's eyes. */
enum error_code invite_make(struct invite *invite, uint64_t now_ms, uint64_t lifetime_ms,
                            char code[JOIN_CODE_TEXT], struct error *err);
void invite_end(struct invite *invite); /* no code is out any more */
void invite_code(const struct invite *invite,
                 char code[JOIN_CODE_TEXT]); /* the one that is open, once more */

/* The state at this time. */
enum invite_state invite_look(struct invite *invite, uint64_t now_ms);
bool invite_is_paused(const struct invite *invite, uint64_t now_ms);

void invite_wrong(struct invite *invite, uint64_t now_ms); /* somebody tried a wrong code */
void invite_use(struct invite *invite);                    /* somebody knew it */

/* Joining by hand, on either side: false when the last attempt was less than LIMIT_JOIN_PAUSE_MS
 * ago. One in the middle that tries again and again until the words fit is what this slows down. */
bool join_knock(uint64_t *paused_until_ms, uint64_t now_ms);

/* What was typed, as the digits of a code. ERROR_INVALID says what is wrong with it. */
enum error_code join_code_parse(const char *typed, char digits[JOIN_CODE_DIGITS],
                                struct error *err);
void join_code_wipe(char digits[JOIN_CODE_DIGITS]);
