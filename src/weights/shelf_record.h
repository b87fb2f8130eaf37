/* The record of which parts of a model are on the disk, whole and verified: a file that only grows.
 * Pure.
 *
 *     byte 0  4  magic "MdSh"
 *          4  4  format: 1
 *          8  32 the model's identity
 *         40     entries of 8 bytes: 4 part (bit 31: it is gone), 4 the same, inverted
 *
 * A later entry overrides an earlier one. Writing stops somewhere when the machine does: what is
 * not an entry ends the record, and the next entry is written there. */
#pragma once

#include "base/buffer.h"
#include "trust/digest.h"
#include "weights/part_set.h"

enum { SHELF_RECORD_HEAD = 40, SHELF_RECORD_ENTRY = 8 };

void shelf_record_begin(const struct digest *identity, struct buffer *out);
void shelf_record_add(uint32_t part, bool gone, struct buffer *out);

/* Fills `has`, which is empty and has the model's n_parts. The answer: how many bytes of the record
 * are good; 0: it is none, or another model's. */
size_t shelf_record_read(const void *bytes, size_t size, const struct digest *identity,
                         struct part_set *has);
