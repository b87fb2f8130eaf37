/* Writes the corpus of fuzz_cache_wire: a message of each kind. `make-cache-corpus FOLDER` */
#include "pipeline/cache_wire.h"

#include <stdio.h>
#include <stdlib.h>

static const char *folder;

static void keep(const char *name, struct buffer *bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes->data, 1, bytes->size, file) != bytes->size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    buffer_clear(bytes);
}

static void keep_offers(const struct cache_route *route, struct buffer *out)
{
    static const unsigned char tokens[4 * 20] = {1, 0, 0, 0, 2};
    struct cache_offer offer = {.patience_ms = 1500, .n_slots = 2};
    offer.slots[0].slot = 1;
    offer.slots[0].n_tokens = 20;
    offer.slots[0].tokens = tokens;
    offer.slots[1].slot = 3;
    offer.slots[1].n_tokens = 7;
    offer.slots[1].tokens = tokens;
    offer.slots[1].cache_key = 0x1234;
    cache_write_offer(route, &offer, out);
    keep("offer", out);
    offer.slots[1].slot = 1;
    cache_write_offer(route, &offer, out);
    keep("offer-twice", out);
    offer.n_slots = 0;
    cache_write_offer(route, &offer, out);
    keep("offer-nothing", out);
}

static void keep_rows(const struct cache_route *route, struct buffer *out)
{
    const struct kv_run run = {.layer = 2, .slot = 1, .first = 0, .n_rows = 3};
    const unsigned char rows[3 * 16] = {7};
    cache_write_rows(route, &run, 16, out);
    buffer_append(out, rows, sizeof rows);
    keep("rows", out);
    cache_write_rows(route, &run, 16, out);
    buffer_append(out, rows, sizeof rows - 1);
    keep("rows-short", out);
}

int main(int argc, char **argv)
{
    const struct cache_route route = {.instance = 5, .from_epoch = 7, .to_epoch = 9};
    struct buffer out = {0};
    if (argc != 2)
        return 2;
    folder = argv[1];
    keep_offers(&route, &out);
    keep_rows(&route, &out);
    cache_write_taken(&route, &out);
    keep("taken", &out);
    cache_write_done(&route, true, &out);
    keep("done", &out);
    cache_write_done(&route, false, &out);
    keep("done-not", &out);
    buffer_deinit(&out);
    return 0;
}
