/* From one driver to the next: the old one stops at a token's boundary and says what its slots
 * hold, the new one begins with that. */
#include "pipeline/driver_state.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

void driver_quiesce(struct driver *driver, void (*quiescent)(void *arg), void *arg)
{
    assert(quiescent);
    pthread_mutex_lock(&driver->lock);
    driver->on_quiescent = quiescent;
    driver->quiescent_arg = arg;
    driver->quiesces = true;
    if (!driver->active)
        pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
}

bool driver_is_quiescent(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    bool quiescent = driver->is_quiescent;
    pthread_mutex_unlock(&driver->lock);
    return quiescent;
}

uint32_t driver_cached_slots(struct driver *driver, struct cached_slot *out)
{
    if (!driver_is_quiescent(driver))
        return 0;
    memcpy(out, driver->cached, driver->n_cached * sizeof *out);
    return driver->n_cached;
}

uint64_t driver_prompt_row_ns(struct driver *driver)
{
    return driver_is_quiescent(driver) ? driver->prompt_row_ns : 0;
}

enum error_code driver_seed(struct driver *driver, const struct cached_slot *slots, uint32_t n,
                            struct error *err)
{
    assert(n <= LIMIT_SEQUENCES);
    size_t n_tokens = 0;
    for (uint32_t i = 0; i < n; i++)
        n_tokens += slots[i].n_tokens;
    struct driver_seeds *seeds = mem_new(sizeof *seeds + n_tokens * sizeof *seeds->tokens);
    if (!seeds)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %zu tokens", n_tokens);
    int32_t *tokens = seeds->tokens;
    for (uint32_t i = 0; i < n; i++) {
        assert(slots[i].slot < driver->options.n_slots &&
               slots[i].n_tokens <= driver->options.context);
        if (slots[i].n_tokens)
            memcpy(tokens, slots[i].tokens, slots[i].n_tokens * sizeof *tokens);
        seeds->slots[seeds->n++] =
            (struct cached_slot){slots[i].slot, slots[i].n_tokens, tokens, slots[i].cache_key};
        tokens += slots[i].n_tokens;
    }
    pthread_mutex_lock(&driver->lock);
    struct driver_seeds *old = driver->seeds;
    driver->seeds = seeds;
    if (!driver->active)
        pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
    mem_free(old);
    return ERROR_NONE;
}
