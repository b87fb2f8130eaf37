#include "shelf_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct shelf *open_shelf(const char *folder, uint64_t limit, uint64_t spare)
{
    struct shelf *shelf;
    struct error err;
    if (shelf_open(folder, &(struct shelf_options){.limit_bytes = limit, .spare_bytes = spare},
                   &shelf, &err))
        fail_msg("%s", err.text);
    return shelf;
}

struct shelf_model *open_model(struct shelf *shelf, const struct manifest *manifest)
{
    struct shelf_model *model;
    struct error err;
    if (shelf_model_open(shelf, manifest, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

int shelf_world_begin(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    weights_folder_make(world->folder);
    world->shelf = open_shelf(world->folder, 0, 0);
    world->manifest = weights_manifest(SIZES, N_PARTS);
    *state = world;
    return 0;
}

int shelf_world_end(void **state)
{
    struct world *world = *state;
    shelf_close(world->shelf);
    manifest_deinit(&world->manifest);
    weights_folder_remove(world->folder);
    free(world);
    return 0;
}
