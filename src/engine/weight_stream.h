/* Weights of layers that do not stay in memory: read from the file by threads of their own, ahead
 * of the batch that uses them, into the slots of a window (weight_window.h).
 *
 * A slot has room for the bytes of a layer as they are in the file. What the device computes from
 * just so (the CPU's matrices as stored) is used in place. The rest has buffers of the device's
 * type beside: repacked by the reading thread on the CPU, uploaded by the device's thread
 * elsewhere. Every streamed layer is bound to its slot once, when the stream opens.
 *
 * Reading goes on across the end of a batch: the first layers of the next one are there when it
 * begins. A layer that cannot be read is an error of the batch that needs it; the next batch tries
 * again.
 *
 * Threading: begin, take, release and end on the device's thread; the rest is inside. */
#pragma once

#include "base/error.h"
#include "engine/weight_window.h"

struct device;
struct model;
struct weight_stream;
struct weight_unit;

/* What a slot takes that this layer passes through: on the device and, for a device that is not the
 * host, beside it. */
void weight_stream_slot_bytes(const struct weight_unit *unit, uint64_t *device_bytes,
                              uint64_t *host_bytes);

/* `units`: the streamed layers in the order of use, which get their buffers; they must outlive the
 * stream. Measures the disk, and begins to read. */
enum error_code weight_stream_open(struct device *device, const struct model *model,
                                   struct weight_unit *const *units, uint32_t n_units,
                                   uint32_t n_slots, struct weight_stream **out, struct error *err);
void weight_stream_close(struct weight_stream *stream); /* NULL is fine */

/* Waits until the next layer in order is there. Every batch takes and releases all layers, or
 * calls weight_stream_end() after a failure. */
enum error_code weight_stream_take(struct weight_stream *stream, struct error *err);
void weight_stream_release(struct weight_stream *stream);
void weight_stream_end(struct weight_stream *stream);

struct weight_stream_facts {
    uint64_t bytes;     /* of the file that all streamed layers are */
    uint64_t disk_bps;  /* as measured when it was opened; 0: too little to measure */
    bool is_direct;     /* reads go past the page cache */
    uint64_t n_read;    /* bytes so far */
    uint64_t waited_ns; /* that batches waited for the disk so far */
};
struct weight_stream_facts weight_stream_facts(struct weight_stream *stream);
