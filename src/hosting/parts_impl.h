/* What parts.c and parts_step.c share. */
#pragma once

#include "hosting/parts.h"

void parts_check(const struct parts *parts); /* asserts what always holds */
void parts_sweep(struct parts *parts);       /* what is gone is to be freed */
/* True: `life` has layers of `next`, which are to stay. */
bool parts_choose_pin(struct parts *parts, struct part_life *life, const Cluster__Placement *next,
                      struct parts_effect *out);
void parts_drop_pins(struct parts *parts, const struct state *state); /* NULL: all */
bool parts_next_unpin(struct parts *parts, struct parts_effect *out);
bool parts_next_job(struct parts *parts, struct parts_effect *out);
bool part_next_flag(struct part_life *life, struct parts_effect *out);
/* Of the instance (NULL: none), that with the epoch; NULL: neither. */
const Cluster__Placement *parts_placement_of(const Cluster__Instance *instance, uint64_t epoch);
