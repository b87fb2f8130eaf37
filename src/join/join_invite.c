#include "join/join_invite.h"

#include "base/limits.h"

#include <sodium.h>
#include <string.h>

static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void invite_code(const struct invite *invite, char code[JOIN_CODE_TEXT])
{
    memcpy(code, invite->digits, 4);
    code[4] = '-';
    memcpy(code + 5, invite->digits + 4, 4);
    code[9] = 0;
}

enum error_code invite_make(struct invite *invite, uint64_t now_ms, uint64_t lifetime_ms,
                            char code[JOIN_CODE_TEXT], struct error *err)
{
    if (lifetime_ms > LIMIT_JOIN_CODE_MS_MAX)
        return error_set(err, ERROR_INVALID, "a join code works for at most %d hours",
                         LIMIT_JOIN_CODE_MS_MAX / 3600000);
    if (sodium_init() < 0)
        return error_set(err, ERROR_INTERNAL, "libsodium cannot start");
    invite_end(invite);
    invite->state = INVITE_OPEN;
    invite->expires_ms = now_ms + (lifetime_ms ? lifetime_ms : LIMIT_JOIN_CODE_MS);
    for (int i = 0; i < JOIN_CODE_DIGITS; i++)
        invite->digits[i] = alphabet[randombytes_uniform(32)];
    invite_code(invite, code);
    return ERROR_NONE;
}

void invite_end(struct invite *invite)
{
    uint64_t hand_paused_until_ms = invite->hand_paused_until_ms;
    sodium_memzero(invite, sizeof *invite);
    invite->hand_paused_until_ms = hand_paused_until_ms;
}

bool join_knock(uint64_t *paused_until_ms, uint64_t now_ms)
{
    if (now_ms < *paused_until_ms)
        return false;
    *paused_until_ms = now_ms + LIMIT_JOIN_PAUSE_MS;
    return true;
}

static void close_invite(struct invite *invite, enum invite_state state)
{
    sodium_memzero(invite->digits, sizeof invite->digits);
    invite->state = state;
}

enum invite_state invite_look(struct invite *invite, uint64_t now_ms)
{
    if (invite->state == INVITE_OPEN && now_ms >= invite->expires_ms)
        close_invite(invite, INVITE_EXPIRED);
    return invite->state;
}

bool invite_is_paused(const struct invite *invite, uint64_t now_ms)
{
    return now_ms < invite->paused_until_ms;
}

void invite_wrong(struct invite *invite, uint64_t now_ms)
{
    if (invite->state != INVITE_OPEN)
        return;
    invite->n_wrong++;
    invite->paused_until_ms = now_ms + LIMIT_JOIN_PAUSE_MS;
    if (invite->n_wrong >= LIMIT_JOIN_WRONG)
        close_invite(invite, INVITE_VOID);
}

void invite_use(struct invite *invite)
{
    close_invite(invite, INVITE_USED);
}

/* Crockford's decoding: what looks like a digit is one. 0: not in the alphabet. */
static char join_invite_digit_of(char c)
{
    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');
    if (c == 'O')
        return '0';
    if (c == 'I' || c == 'L')
        return '1';
    return c && strchr(alphabet, c) ? c : 0;
}

enum error_code join_code_parse(const char *typed, char digits[JOIN_CODE_DIGITS], struct error *err)
{
    size_t n = 0;
    for (; *typed; typed++) {
        if (*typed == '-' || *typed == ' ')
            continue;
        char digit = join_invite_digit_of(*typed);
        if (!digit)
            return error_set(err, ERROR_INVALID,
                             "a join code has only digits and letters (never U), like K7QM-4XZD");
        if (n == JOIN_CODE_DIGITS)
            return error_set(err, ERROR_INVALID,
                             "a join code has 8 characters, like K7QM-4XZD: this one has more");
        digits[n++] = digit;
    }
    if (n < JOIN_CODE_DIGITS)
        return error_set(err, ERROR_INVALID,
                         "a join code has 8 characters, like K7QM-4XZD: this one has %zu", n);
    return ERROR_NONE;
}

void join_code_wipe(char digits[JOIN_CODE_DIGITS])
{
    sodium_memzero(digits, JOIN_CODE_DIGITS);
}
