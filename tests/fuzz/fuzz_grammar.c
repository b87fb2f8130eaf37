/* Grammars of any source: the first byte says the kind, the rest is the text. What compiles is
 * walked: of each mask over all bytes some byte is taken, and what the mask allows is taken. */
#include "fuzz.h"

#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUZZ_VOCAB = 257, FUZZ_STEPS = 60 };

static struct grammar_vocabulary *fuzz_vocabulary(void)
{
    static struct grammar_vocabulary *vocabulary;
    char bytes[FUZZ_VOCAB];
    uint64_t starts[FUZZ_VOCAB + 1] = {0};
    const int32_t end = 0;
    struct error err;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        starts[i + 1] = (uint64_t)i;
    }
    starts[FUZZ_VOCAB] = 256;
    if (!vocabulary)
        FUZZ_CHECK(!grammar_vocabulary_new(bytes, starts, FUZZ_VOCAB, &end, 1, &vocabulary, &err));
    return vocabulary;
}

static void fuzz_walk(struct grammar_matcher *matcher, const uint8_t *data, size_t size)
{
    struct grammar_run run = {0};
    struct error err;
    for (size_t step = 0; step < FUZZ_STEPS; step++) {
        const uint64_t *bits;
        if (grammar_mask(matcher, &run, &bits, &err))
            break;
        int32_t token = (int32_t)(data[step * 7 % size] * 257u % FUZZ_VOCAB);
        int tries = 0;
        for (; !(bits[token / 64] >> (token % 64) & 1) && tries < FUZZ_VOCAB; tries++)
            token = (token + 1) % FUZZ_VOCAB;
        FUZZ_CHECK(tries < FUZZ_VOCAB); /* every byte is a token: something may follow */
        if (token == 0)
            break;
        const enum error_code code = grammar_take_token(matcher, &run, token, &err);
        FUZZ_CHECK(code == ERROR_NONE || code == ERROR_BUSY);
        if (code)
            break;
    }
    grammar_run_deinit(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum grammar_kind kinds[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_CHOICE,
                                              GRAMMAR_GBNF, GRAMMAR_CALLS};
    if (size < 2 || size > 4096)
        return 0;
    const struct grammar_source source = {.kind = kinds[data[0] % 8 < 5 ? data[0] % 8 : 4],
                                          .text = (const char *)data + 1,
                                          .size = size - 1};
    struct grammar *grammar;
    struct grammar_matcher *matcher;
    struct error err;
    if (grammar_compile(&source, &grammar, &err)) {
        FUZZ_CHECK(err.text[0]);
        return 0;
    }
    if (!grammar_matcher_new(grammar, fuzz_vocabulary(), &matcher, &err)) {
        fuzz_walk(matcher, data, size);
        grammar_matcher_free(matcher);
    }
    grammar_free(grammar);
    return 0;
}
