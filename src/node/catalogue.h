/* The models that can be asked for, and their text parts (vocabulary, template): opened where
 * somebody asks for them (daemon.h's daemon_open_model()), from the header, which any node can
 * fetch. On the loop's thread; vocabularies are read beside it. */
#pragma once

#include "base/error.h"

#include "cluster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct catalogue;
struct daemon;
struct digest;
struct model;

enum error_code catalogue_open(struct daemon *daemon, struct catalogue **out, struct error *err);
/* Who still waits for a model is told so. Frees it; then `closed` is called, at once or later. */
void catalogue_close(struct catalogue *catalogue, void (*closed)(struct daemon *daemon));
void catalogue_changed(struct catalogue *catalogue); /* weights or models have; NULL: nothing */

/* What the cluster knows. NULL name: its only model. */
const Cluster__Model *catalogue_find(const struct daemon *daemon, const char *name);
bool catalogue_manifest_of(const Cluster__Model *model, struct digest *out);
/* The context where nobody gave one: what fits now with the rest of the demand
 * (placing_context()); the usual one, where the header is not here yet. */
uint32_t catalogue_context_fitting(struct daemon *daemon, const char *name,
                                   const Cluster__Demand *demand);
uint32_t catalogue_context_usual(struct daemon *daemon, const char *name);
/* Opened here, and kept so; NULL: its header, which this fetches, is not here yet. `self` is the
 * daemon. */
const struct model *catalogue_model_here(void *self, const Cluster__Model *model);
