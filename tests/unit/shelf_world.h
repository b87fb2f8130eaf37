/* A shelf in a fresh folder, for the tests of it. */
#pragma once

#include "weights/shelf.h"
#include "weights_world.h"

#define SIZES ((uint64_t[]){5000, 70000, 64, 300000, 1})
enum { N_PARTS = 5 };

struct world {
    char folder[PATH_MAX];
    struct shelf *shelf;
    struct manifest manifest; /* of N_PARTS parts of these SIZES */
};

struct shelf *open_shelf(const char *folder, uint64_t limit, uint64_t spare);
struct shelf_model *open_model(struct shelf *shelf, const struct manifest *manifest);

/* cmocka's set-up and tear-down: the state is a struct world. */
int shelf_world_begin(void **state);
int shelf_world_end(void **state);
