#include "doctor/nft_rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The next word, number or sign at or after *at, without comments; its length, 0: the end. */
static size_t nft_word(const char **at)
{
    for (;;) {
        *at += strspn(*at, " \t\r");
        if (**at != '#')
            break;
        *at += strcspn(*at, "\n");
    }
    if (!**at)
        return 0;
    const size_t length = strcspn(*at, " \t\r\n;{},#");
    return length ? length : 1;
}

static bool nft_is(const char *word, size_t length, const char *other)
{
    return strlen(other) == length && memcmp(word, other, length) == 0;
}

/* "7979" or "7000-8000". */
static bool nft_names_port(const char *word, size_t length, uint16_t port)
{
    char *end;
    if (!isdigit((unsigned char)*word))
        return false;
    const unsigned long first = strtoul(word, &end, 10);
    unsigned long last = first;
    if (*end == '-' && isdigit((unsigned char)end[1]))
        last = strtoul(end + 1, &end, 10);
    return (size_t)(end - word) == length && first <= port && port <= last;
}

bool nft_rules_lack(const char *text, uint16_t port)
{
    bool in_input = false, drops = false, named = false, is_dport = false;
    unsigned depth = 0, chain = 0; /* of braces; that of the chain of input */
    const char *before = "";
    size_t n_before = 0;
    for (size_t length; (length = nft_word(&text)); text += length) {
        depth += *text == '{';
        if (*text == '}' && depth && depth-- == chain)
            in_input = false;
        if (nft_is(before, n_before, "hook") && nft_is(text, length, "input")) {
            in_input = true;
            chain = depth;
        }
        is_dport = nft_is(text, length, "dport") || (is_dport && *text != '\n' && *text != ';');
        named |= is_dport && nft_names_port(text, length, port);
        /* as the policy, or a rule of its own at the end: "drop" and nothing before it */
        const bool ends = nft_is(text, length, "drop") || nft_is(text, length, "reject");
        drops |= in_input && ends &&
                 (nft_is(before, n_before, "policy") || nft_is(before, n_before, "\n") ||
                  nft_is(before, n_before, ";"));
        before = text;
        n_before = length;
    }
    return drops && !named;
}
