#include "agreement/nonces.h"

#include <assert.h>
#include <stddef.h>

/* A nonce is random already. */
static uint16_t *nonces_count_of(struct nonces *nonces, uint64_t value)
{
    return &nonces->counts[value % NONCE_BUCKETS];
}

static struct nonce *nonces_find(struct nonces *nonces, uint64_t value)
{
    for (uint32_t i = 0; i < LIMIT_PROPOSAL_NONCES && *nonces_count_of(nonces, value); i++) {
        if (nonces->ring[i].value == value)
            return &nonces->ring[i];
    }
    return NULL;
}

bool nonces_has(const struct nonces *nonces, uint64_t value)
{
    return value && nonces_find((struct nonces *)(uintptr_t)nonces, value);
}

bool nonces_has_room(const struct nonces *nonces)
{
    return nonces->n_open < LIMIT_PROPOSAL_NONCES / 2;
}

/* The oldest makes room, but none that is still open: those are at most half of all. */
static void nonces_put(struct nonces *nonces, struct nonce nonce)
{
    assert(nonce.value && nonces->n_open <= LIMIT_PROPOSAL_NONCES / 2);
    struct nonce *slot;
    do {
        slot = &nonces->ring[nonces->next];
        nonces->next = (nonces->next + 1) % LIMIT_PROPOSAL_NONCES;
    } while (slot->value && !slot->applied);
    if (slot->value)
        --*nonces_count_of(nonces, slot->value);
    *slot = nonce;
    ++*nonces_count_of(nonces, nonce.value);
}

void nonces_submitted(struct nonces *nonces, uint64_t value)
{
    assert(value && nonces_has_room(nonces));
    nonces_put(nonces, (struct nonce){value, false});
    nonces->n_open++;
}

void nonces_applied(struct nonces *nonces, uint64_t value)
{
    struct nonce *nonce = value ? nonces_find(nonces, value) : NULL;
    if (!value)
        return;
    if (!nonce) {
        nonces_put(nonces, (struct nonce){value, true});
        return;
    }
    nonces->n_open -= !nonce->applied;
    nonce->applied = true;
}

void nonces_lost(struct nonces *nonces)
{
    assert(nonces->n_open <= LIMIT_PROPOSAL_NONCES / 2);
    for (uint32_t i = 0; i < LIMIT_PROPOSAL_NONCES; i++) {
        struct nonce *nonce = &nonces->ring[i];
        if (nonce->applied || !nonce->value)
            continue;
        --*nonces_count_of(nonces, nonce->value);
        *nonce = (struct nonce){0};
    }
    nonces->n_open = 0;
}

void nonces_clear(struct nonces *nonces)
{
    *nonces = (struct nonces){0};
}
