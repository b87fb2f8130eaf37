/* Which of several tokens libllama meets first.
 *
 * Where a vocabulary has more than one text that could be the EOT, libllama takes the first in
 * the order of its std::unordered_map, which is an accident of libstdc++ and yet what everybody
 * who uses that library gets. To give the same answer, this replays that map: MurmurHash2 (64 bit,
 * Austin Appleby; libstdc++ seeds it with 0xc70f6907), a prime number of buckets that at least
 * doubles, one list through all nodes in which a bucket's nodes are neighbours. */
#include "base/mem.h"
#include "model/tokenizer_private.h"

#include <string.h>

enum { NODE_NONE = -1, BEFORE_ALL = -2 };

struct map {
    uint64_t *hashes;
    int32_t *next;    /* of node i */
    int32_t *buckets; /* the node before the bucket's first, BEFORE_ALL or NODE_NONE */
    int32_t first;
    uint32_t n_buckets;
};

static uint64_t tokenizer_order_mix(uint64_t value)
{
    return value ^ (value >> 47);
}

static uint64_t tokenizer_order_murmur(const char *text, size_t size)
{
    const uint64_t multiplier = 0xc6a4a7935bd1e995u;
    uint64_t hash = 0xc70f6907u ^ (size * multiplier);
    for (; size >= 8; text += 8, size -= 8) {
        uint64_t word = 0;
        for (uint32_t i = 0; i < 8; i++)
            word |= (uint64_t)(uint8_t)text[i] << (8 * i);
        hash = (hash ^ tokenizer_order_mix(word * multiplier) * multiplier) * multiplier;
    }
    if (size) {
        uint64_t rest = 0;
        for (uint32_t i = 0; i < size; i++)
            rest |= (uint64_t)(uint8_t)text[i] << (8 * i);
        hash = (hash ^ rest) * multiplier;
    }
    return tokenizer_order_mix(tokenizer_order_mix(hash) * multiplier);
}

static int32_t *tokenizer_order_after(struct map *map, int32_t node)
{
    return node == BEFORE_ALL ? &map->first : &map->next[node];
}

static uint32_t bucket_of(const struct map *map, int32_t node)
{
    return (uint32_t)(map->hashes[node] % map->n_buckets);
}

/* Links a node at the front of its bucket; a bucket's first node goes to the front of all. */
static void link_node(struct map *map, int32_t node)
{
    uint32_t bucket = bucket_of(map, node);
    if (map->buckets[bucket] == NODE_NONE) {
        map->next[node] = map->first;
        map->first = node;
        if (map->next[node] != NODE_NONE)
            map->buckets[bucket_of(map, map->next[node])] = node;
        map->buckets[bucket] = BEFORE_ALL;
    } else {
        int32_t *place = tokenizer_order_after(map, map->buckets[bucket]);
        map->next[node] = *place;
        *place = node;
    }
}

static void tokenizer_order_rehash(struct map *map, uint32_t n_buckets)
{
    map->n_buckets = n_buckets;
    for (uint32_t i = 0; i < n_buckets; i++)
        map->buckets[i] = NODE_NONE;
    int32_t node = map->first;
    map->first = NODE_NONE;
    while (node != NODE_NONE) {
        int32_t next = map->next[node];
        link_node(map, node);
        node = next;
    }
}

static enum error_code tokenizer_order_replay(const struct tokenizer *tokenizer, struct map *map,
                                              struct error *err)
{
    /* libstdc++'s primes when a map grows one element at a time */
    static const uint32_t primes[] = {13,     29,     59,      127,     257,     541,   1109,
                                      2357,   5087,   10273,   20753,   42043,   85229, 172933,
                                      351061, 712697, 1447153, 2938679, 5967347, 0};
    uint32_t step = 0;
    while (primes[step] && primes[step] < tokenizer->n_tokens)
        step++;
    map->hashes = mem_new_array(tokenizer->n_tokens, sizeof *map->hashes);
    map->next = mem_new_array(tokenizer->n_tokens, sizeof *map->next);
    map->buckets = mem_new_array(primes[step], sizeof *map->buckets);
    if (!map->hashes || !map->next || !map->buckets)
        return tokenizer_no_memory(err);
    map->first = NODE_NONE;
    tokenizer_order_rehash(map, primes[0]);
    step = 0;
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        if (i == map->n_buckets)
            tokenizer_order_rehash(map, primes[++step]);
        size_t size;
        const char *text = text_table_at(&tokenizer->texts, i, &size);
        map->hashes[i] = tokenizer_order_murmur(text, size);
        link_node(map, (int32_t)i);
    }
    return ERROR_NONE;
}

static bool is_among(const int32_t *tokens, uint32_t count, int32_t token)
{
    while (count && tokens[count - 1] != token)
        count--;
    return count > 0;
}

enum error_code reference_order_first(const struct tokenizer *tokenizer, const int32_t *tokens,
                                      uint32_t count, int32_t *first, struct error *err)
{
    struct map map = {0};
    enum error_code code = tokenizer_order_replay(tokenizer, &map, err);
    if (!code) {
        *first = map.first;
        while (!is_among(tokens, count, *first))
            *first = map.next[*first];
    }
    mem_free(map.hashes);
    mem_free(map.next);
    mem_free(map.buckets);
    return code;
}
