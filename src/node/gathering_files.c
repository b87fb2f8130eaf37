/* What a share fetches of each of the model's files. */
#include "node/gathering_impl.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cluster/event.h"

#include <stdio.h>
#include <string.h>

/* ---- what an order says of them -------------------------------------------------------------- */

static enum error_code gather_fetch_read(const Node__GatherFile *said, uint32_t n_files,
                                         struct gather_file *out, struct error *err)
{
    if (said->sha256.len != DIGEST_BYTES)
        return error_set(err, ERROR_INVALID, "a model without a SHA-256 is not gathered");
    snprintf(out->name, sizeof out->name, "%s", said->name ? said->name : "");
    out->bytes = said->bytes;
    out->connections = n_files > 1 ? 2 : 0; /* of each of several at once */
    memcpy(out->whole.bytes, said->sha256.data, DIGEST_BYTES);
    return gather_file_check(out, err);
}

enum error_code gather_fetches_read(const Node__Gather *said, struct gather_fetch **out,
                                    uint32_t *n, struct error *err)
{
    *out = NULL;
    *n = 0;
    if (!said->n_files || said->n_files > GATHER_FILES)
        return error_set(err, ERROR_INVALID, "a model of %zu files is not gathered", said->n_files);
    struct gather_fetch *fetches = mem_new_array(said->n_files, sizeof *fetches);
    if (!fetches)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    const uint32_t n_files = (uint32_t)said->n_files;
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < n_files && !code; i++)
        code = gather_fetch_read(said->files[i], n_files, &fetches[i].file, err);
    *out = fetches;
    *n = n_files;
    return code;
}

void gather_share_name(const struct gather_share *share, char out[static DIGEST_TEXT])
{
    struct digest all = share->fetches[0].file.whole;
    struct digest_chain chain;
    digest_chain_begin(&chain);
    for (uint32_t i = 0; i < share->n_fetches; i++)
        digest_chain_add(&chain, share->fetches[i].file.whole.bytes, DIGEST_BYTES);
    if (share->n_fetches > 1)
        digest_chain_end(&chain, &all);
    digest_text(&all, out);
}

/* ---- its units ------------------------------------------------------------------------------- */

struct gather_own *gather_own_find(const struct gather_share *share, uint32_t index)
{
    uint32_t low = 0, high = share->n_own;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (share->own[middle].wanted.index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low < share->n_own && share->own[low].wanted.index == index ? &share->own[low] : NULL;
}

struct gather_fetch *gather_fetch_of(struct gather_share *share, uint32_t unit)
{
    const struct gather_own *own = gather_own_find(share, unit);
    return own ? &share->fetches[own->wanted.unit.file] : NULL;
}

/* Units that are kept need no work. */
enum error_code gather_fetch_order(struct gather_share *share, uint32_t file, struct error *err)
{
    struct gather_fetch *fetch = &share->fetches[file];
    struct gather_wanted *wanted = mem_new_array((size_t)share->n_own + 1, sizeof *wanted);
    uint32_t n = 0;
    enum error_code code =
        wanted ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "not enough memory to gather");
    for (uint32_t i = 0; i < share->n_own && !code; i++) {
        if (!share->own[i].is_kept && share->own[i].wanted.unit.file == file)
            wanted[n++] = share->own[i].wanted;
    }
    if (!code && !fetch->work) {
        fetch->here = 0;
        code = gather_work_open(&fetch->file, &fetch->work, err);
    }
    if (!code)
        code = gather_work_order(fetch->work, wanted, n, err);
    mem_free(wanted);
    return code;
}

/* ---- all of them ----------------------------------------------------------------------------- */

bool gather_has_work(const struct gather_share *share)
{
    bool has = false;
    for (uint32_t i = 0; i < share->n_fetches; i++)
        has |= share->fetches[i].work != NULL;
    return has;
}

bool gather_has_dropped(const struct gather_share *share)
{
    bool has = false;
    for (uint32_t i = 0; i < share->n_fetches; i++)
        has |= share->fetches[i].dropped != NULL;
    return has;
}

void gather_release_all(struct gather_share *share)
{
    for (uint32_t i = 0; i < share->n_fetches; i++) {
        if (share->fetches[i].work)
            gather_work_release(share->fetches[i].work);
    }
}

void gather_drop_all(struct gather_share *share)
{
    for (uint32_t i = 0; i < share->n_fetches; i++) {
        struct gather_fetch *fetch = &share->fetches[i];
        fetch->dropped = fetch->work;
        fetch->work = NULL;
        fetch->here = fetch->bytes_per_s = 0;
    }
}

void gather_fetches_end(struct gather_share *share, bool ends)
{
    for (uint32_t i = 0; i < share->n_fetches; i++) {
        struct gather_fetch *fetch = &share->fetches[i];
        if (fetch->dropped && gather_work_end(fetch->dropped, true))
            fetch->dropped = NULL;
        if (ends && fetch->work && gather_work_end(fetch->work, share->drops))
            fetch->work = NULL;
    }
}

void gather_fetches_close(struct gather_share *share)
{
    for (uint32_t i = 0; i < share->n_fetches; i++) {
        gather_work_close(share->fetches[i].work, share->drops);
        gather_work_close(share->fetches[i].dropped, true);
        share->fetches[i].work = share->fetches[i].dropped = NULL;
    }
}

uint64_t gather_fetches_here(const struct gather_share *share)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < share->n_fetches; i++)
        bytes += share->fetches[i].work ? share->fetches[i].here : 0;
    return bytes;
}

uint64_t gather_fetches_speed(const struct gather_share *share)
{
    uint64_t bytes_per_s = 0;
    for (uint32_t i = 0; i < share->n_fetches; i++)
        bytes_per_s += share->fetches[i].work ? share->fetches[i].bytes_per_s : 0;
    return bytes_per_s;
}
