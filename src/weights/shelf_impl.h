/* Private to shelf.c, shelf_files.c and shelf_model.c. */
#pragma once

#include "base/durable_file.h"
#include "weights/shelf.h"

struct shelf {
    char folder[PATH_MAX];
    struct shelf_options options;
};

struct shelf_paths {
    char data[PATH_MAX], manifest[PATH_MAX], record[PATH_MAX];
};

struct shelf_model {
    struct shelf *shelf;
    struct manifest manifest;
    struct digest identity;
    struct shelf_paths paths;
    struct part_set has;
    int data, record;     /* descriptors; -1: none */
    uint64_t record_size; /* its good bytes */
};

enum error_code shelf_paths_of(const struct shelf *shelf, const struct digest *identity,
                               struct shelf_paths *out, struct error *err);

/* Opens a record under a lock (LOCK_SH or LOCK_EX, without waiting). ERROR_BUSY: somebody has it;
 * ERROR_NOT_FOUND: there is none and it is not to be made. */
enum error_code shelf_record_lock(const char *path, bool make, int lock, int *out,
                                  struct error *err);

/* Removes a model whose record the caller has locked alone. */
void shelf_files_remove(const struct shelf_paths *paths);

/* Evicts what must go for so many more bytes. */
enum error_code shelf_make_room(struct shelf *shelf, uint64_t need_bytes, struct error *err);
