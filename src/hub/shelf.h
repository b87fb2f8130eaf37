/* Where pulled models lie, and what lies there.
 *
 *     $STATE/pulled/hf/ORG/REPO/FILE.gguf          $STATE: base/state_folder.h
 *     $STATE/pulled/ollama/NAME/TAG.gguf           NAME: USER/NAME where USER was said
 *     $STATE/pulled/url/HOST/SHA-OF-URL/FILE.gguf  HOST's ':' is '_'
 *
 * FILE.gguf is there when all of it is, and was checked. While it is not, FILE.gguf.part has its
 * bytes at their places (a sparse file), FILE.gguf.pull says which, and FILE.gguf.live says what
 * came since (pull_disk.h); the three are one puller's, who holds flock() on FILE.gguf.part.
 * Pure. Any thread. */
#pragma once

#include "base/error.h"
#include "hub/hub_name.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define PULLED_PART ".part"
#define PULLED_STATE ".pull"
#define PULLED_LIVE ".live"

/* "$STATE/pulled". ERROR_NOT_FOUND: there is no state folder. */
enum error_code pulled_folder(char out[PATH_MAX], struct error *err);
/* The folder of a name's files, or, for ollama:, the folder of its tags. Nothing is made. */
enum error_code pulled_folder_of(const struct hub_name *name, char out[PATH_MAX],
                                 struct error *err);

/* What a .pull file says. */
struct pulled_state {
    uint64_t size, done; /* bytes of the whole file, and of those that are here */
};
enum error_code pulled_parse(const char *bytes, size_t size, struct pulled_state *out,
                             struct error *err);
