/* Masks of constrained output: schema to first mask, and each mask of random walks, over a
 * vocabulary of 128k made-up tokens (all bytes, words, words behind a blank, digits, JSON's marks).
 * Then free text in which a tool may be called: the mask of each place up to the mark's end.
 *
 *     build/release/bench/grammar [WALKS] [--print]   --print: each walk's schema, a tab, its text
 *                                                     and a NUL instead, for grammar_valid.mjs
 */
#include "grammar/grammar.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_VOCAB = 128 * 1024, TOKENS_MAX = 300, TIMES_MAX = 1 << 20 };

#define OBJECT(properties, required)                                                               \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required                 \
    "],\"additionalProperties\":false}"

static const char *const schemas[] = {
    OBJECT("\"path\":{\"type\":\"string\"},\"start\":{\"type\":\"integer\",\"minimum\":1},"
           "\"end\":{\"type\":\"integer\",\"minimum\":1}",
           "\"path\""),
    OBJECT("\"path\":{\"type\":\"string\"},\"old\":{\"type\":\"string\"},\"new\":{\"type\":"
           "\"string\"},\"all\":{\"type\":\"boolean\"}",
           "\"path\",\"old\",\"new\""),
    OBJECT("\"command\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4000},\"timeout\":{"
           "\"type\":\"number\",\"minimum\":0,\"maximum\":600}",
           "\"command\""),
    OBJECT("\"pattern\":{\"type\":\"string\"},\"glob\":{\"type\":\"string\"},\"mode\":{\"enum\":["
           "\"content\",\"files\",\"count\"]},\"before\":{\"type\":\"integer\",\"minimum\":0}",
           "\"pattern\""),
    OBJECT("\"todos\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":50,\"items\":" OBJECT(
               "\"id\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9-]{1,20}$\"},\"text\":{\"type\":"
               "\"string\"},\"state\":{\"enum\":[\"open\",\"done\"]}",
               "\"id\",\"text\",\"state\"") "}",
           "\"todos\""),
    OBJECT("\"title\":{\"type\":\"string\"},\"day\":{\"type\":\"string\",\"format\":\"date\"},"
           "\"from\":{\"type\":\"string\",\"format\":\"date-time\"},\"guests\":{\"type\":\"array\","
           "\"items\":{\"type\":\"string\",\"format\":\"email\"},\"maxItems\":100}",
           "\"title\",\"day\""),
    OBJECT("\"table\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z_][A-Za-z0-9_]*$\"},\"where\":{"
           "\"anyOf\":[{\"type\":\"null\"}," OBJECT(
               "\"column\":{\"type\":\"string\"},\"op\":{"
               "\"enum\":[\"=\",\"<\",\">\"]},\"value\":{"
               "\"type\":[\"string\",\"number\"]}",
               "\"column\",\"op\",\"value\"") "]},"
                                              "\"limit\":{\"type\":\"integer\",\"minimum\":1,"
                                              "\"maximum\":1000}",
           "\"table\",\"where\""),
    "{\"$defs\":{\"node\":" OBJECT(
        "\"name\":{\"type\":\"string\"},\"children\":{\"type\":\"array\","
        "\"items\":{\"$ref\":\"#/$defs/node\"}}",
        "\"name\"") "},\"$ref\":\"#/$defs/node\"}",
    "{\"oneOf\":[" OBJECT("\"kind\":{\"const\":\"circle\"},\"r\":{\"type\":\"number\","
                          "\"exclusiveMinimum\":0}",
                          "\"kind\",\"r\"") "," OBJECT("\"kind\":{\"const\":\"box\"},\"w\":{"
                                                       "\"multipleOf\":0.5,\"type\":\"number\"}",
                                                       "\"kind\",\"w\"") "]}",
    ("{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"}},"
     "\"required\":[\"id\"],\"additionalProperties\":{\"type\":[\"integer\",\"null\"]}}"),
    "{\"type\":\"object\"}",
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

static uint64_t times[TIMES_MAX];
static size_t n_times;

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void fail(const struct error *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* Token 0 ends, then all bytes, JSON's marks, numbers, and made-up words. */
static struct grammar_vocabulary *make_vocabulary(void)
{
    static const char *const marks[] = {"{\"", "\":", "\": ", "\", \"", "\"}",  "\": \"", "},",
                                        "{}",  "[]",  "true", "false",  "null", "\",\n",  "    "};
    static const char syllables[][4] = {"ka",  "lo", "mi",   "ren", "sta", "to", "u",  "ve",
                                        "win", "e",  "path", "li",  "ne",  "or", "qu", "\xc3\xa9"};
    uint64_t *starts = mem_new_array(N_VOCAB + 1, sizeof *starts), size = 0;
    char *bytes = mem_new_array(N_VOCAB, 32);
    struct grammar_vocabulary *vocabulary;
    struct error err;
    const int32_t end = 0;
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        starts[id] = size;
        char text[32] = "";
        if (id >= 1 && id < 257) {
            bytes[size++] = (char)(id - 1);
        } else if (id >= 257 && id < 257 + sizeof marks / sizeof *marks) {
            snprintf(text, sizeof text, "%s", marks[id - 257]);
        } else if (id < 2000) {
            snprintf(text, sizeof text, "%u", id % 1000);
        } else {
            strcat(text, id & 1 ? " " : "");
            for (uint32_t rest = id / 2; rest; rest /= 16)
                strncat(text, syllables[rest % 16], 4);
            strcat(text, id % 23 == 0 ? "\"" : "");
        }
        if (id >= 257) {
            memcpy(bytes + size, text, strlen(text));
            size += strlen(text);
        }
    }
    starts[N_VOCAB] = size;
    if (grammar_vocabulary_new(bytes, starts, N_VOCAB, &end, 1, &vocabulary, &err))
        fail(&err);
    mem_free(starts);
    mem_free(bytes);
    return vocabulary;
}

/* One of the tokens allowed: mostly of the first, which are single bytes and marks, so that texts
 * end; -1 where none is. */
static int32_t choose(const uint64_t *bits, uint64_t seed, uint64_t step)
{
    const bool is_short = random_unit_at(seed, step * 2) < 0.6;
    const uint32_t from =
        (uint32_t)(random_unit_at(seed, step * 2 + 1) * (is_short ? 300 : N_VOCAB));
    for (uint32_t i = 0; i < N_VOCAB; i++) {
        const uint32_t id = (from + i) % N_VOCAB;
        if (bits[id / 64] >> (id % 64) & 1)
            return (int32_t)id;
    }
    return -1;
}

static void walk(struct grammar_matcher *matcher, const char *schema, uint64_t seed, bool prints)
{
    struct grammar_run run = {0};
    struct error err;
    int32_t token = -1;
    for (uint64_t step = 0; step < TOKENS_MAX && token != 0; step++) {
        const uint64_t *bits;
        const uint64_t before = clock_now_ns();
        if (grammar_mask(matcher, &run, &bits, &err))
            fail(&err);
        if (n_times < TIMES_MAX)
            times[n_times++] = clock_now_ns() - before;
        token = bits[0] & 1 && random_unit_at(seed, step + 1000000) < 0.5
                    ? 0
                    : choose(bits, seed, step);
        if (token < 0) {
            fprintf(stderr, "no token may follow: %.*s\n", (int)run.n_bytes, run.bytes);
            exit(1);
        }
        if (grammar_take_token(matcher, &run, token, &err))
            fail(&err);
    }
    if (prints && token == 0)
        printf("%s\t%.*s%c", schema, (int)run.n_bytes, run.bytes, 0);
    grammar_run_deinit(&run);
}

/* Reasoning, then text with a mark cut into bytes: each mask when first made, and made again. */
static void walk_calls(const struct grammar_vocabulary *vocabulary)
{
    static const char source_text[] =
        "{\"begin\":[\"<tool_call>\"],\"think\":[\"<think>\",\"</think>\"],\"many\":true,"
        "\"forms\":[\"%s%c%s%(</tool_call>%)\"],\"tools\":[{\"name\":\"f\",\"call\":{\"type\":"
        "\"object\",\"properties\":{\"name\":{\"const\":\"f\"}},\"required\":[\"name\"]}}]}";
    static const char text[] = "<think>so</think>it <tool_call>";
    const struct grammar_source source = {GRAMMAR_CALLS, false, source_text,
                                          sizeof source_text - 1};
    struct grammar_matcher *matcher;
    struct grammar *grammar;
    struct error err;
    const uint64_t *bits, before = clock_now_ns();
    if (grammar_compile(&source, &grammar, &err) ||
        grammar_matcher_new(grammar, vocabulary, &matcher, &err))
        fail(&err);
    const double compile_ms = (double)(clock_now_ns() - before) / 1e6;
    double most_us[2] = {0}, sum_us[2] = {0};
    for (int again = 0; again < 2; again++) {
        struct grammar_run run = {0};
        for (size_t i = 0; i < sizeof text - 1; i++) {
            const uint64_t from = clock_now_ns();
            if (grammar_mask(matcher, &run, &bits, &err))
                fail(&err);
            const double us = (double)(clock_now_ns() - from) / 1e3;
            most_us[again] = us > most_us[again] ? us : most_us[again];
            sum_us[again] += us;
            if (grammar_take(matcher, &run, text + i, 1, &err))
                fail(&err);
        }
        grammar_run_deinit(&run);
    }
    printf("text with calls: compiled in %.2f ms, %u nodes; %zu masks: first %.0f us on average, "
           "most %.0f us; again %.2f us, most %.2f us\n",
           compile_ms, grammar_size(grammar).n_nodes, sizeof text - 1,
           sum_us[0] / (sizeof text - 1), most_us[0], sum_us[1] / (sizeof text - 1), most_us[1]);
    grammar_matcher_free(matcher);
    grammar_free(grammar);
}

int main(int argc, char **argv)
{
    const unsigned n_walks = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
    const bool prints = argc > 2;
    struct grammar_vocabulary *vocabulary = make_vocabulary();
    double slowest_ms = 0;
    for (size_t i = 0; i < N_SCHEMAS; i++) {
        const struct grammar_source source = {GRAMMAR_JSON_SCHEMA, false, schemas[i],
                                              strlen(schemas[i])};
        struct grammar_matcher *matcher;
        struct grammar_run run = {0};
        struct grammar *grammar;
        struct error err;
        const uint64_t *bits, before = clock_now_ns();
        if (grammar_compile(&source, &grammar, &err) ||
            grammar_matcher_new(grammar, vocabulary, &matcher, &err) ||
            grammar_mask(matcher, &run, &bits, &err))
            fail(&err);
        const double first_ms = (double)(clock_now_ns() - before) / 1e6;
        slowest_ms = first_ms > slowest_ms ? first_ms : slowest_ms;
        if (!prints)
            printf("schema %2zu: first mask after %6.2f ms, %u nodes\n", i, first_ms,
                   grammar_size(grammar).n_nodes);
        for (unsigned k = 0; k < n_walks; k++)
            walk(matcher, schemas[i], i * 1000003 + k, prints);
        grammar_run_deinit(&run);
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
    qsort(times, n_times, sizeof *times, compare_u64);
    if (!prints)
        printf("%zu masks of %d tokens: p50 %.1f us, p99 %.1f us, most %.1f us; slowest first mask "
               "%.2f ms\n",
               n_times, N_VOCAB, (double)times[n_times / 2] / 1e3,
               (double)times[n_times * 99 / 100] / 1e3, (double)times[n_times - 1] / 1e3,
               slowest_ms);
    if (!prints)
        walk_calls(vocabulary);
    grammar_vocabulary_free(vocabulary);
    return 0;
}
