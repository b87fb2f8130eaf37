/* The encoder of a projector on one device: from a picture to the rows that stand for it in a
 * prompt.
 *
 *     code = picture_encoder_open(projector, device, &options, &encoder, &err);
 *     code = picture_encoder_rows(encoder, &picture, &rows, &err);
 *     …
 *     picture_rows_deinit(&rows);
 *     picture_encoder_close(encoder);
 *
 * A picture is computed whole, all patches at once. Memory is taken when it opens, as much as the
 * largest picture needs; picture_encoder_measure() says how much without taking any. On the CPU the
 * weights stay in the mapped file.
 *
 * Threading: all of one encoder's calls on the device's own thread, as a stage's. The projector
 * must outlive it. */
#pragma once

#include "engine/stage.h"
#include "model/picture.h"
#include "model/projector.h"

struct device;
struct picture_encoder;

struct picture_encoder_options {
    enum flash_mode flash; /* without it attention takes memory with the square of the patches */
};

/* What picture_encoder_open() would take: weights, compute, and host memory beside a device that is
 * not the host; nothing of it for a KV cache. Allocates nothing on the device. */
enum error_code picture_encoder_measure(const struct projector *projector, struct device *device,
                                        const struct picture_encoder_options *options,
                                        struct stage_memory *out, struct error *err);

/* ERROR_NO_MEMORY says what is needed and what is free. */
enum error_code picture_encoder_open(const struct projector *projector, struct device *device,
                                     const struct picture_encoder_options *options,
                                     struct picture_encoder **out, struct error *err);
void picture_encoder_close(struct picture_encoder *encoder);

/* What it has taken by now. */
struct stage_memory picture_encoder_memory(const struct picture_encoder *encoder);

/* `out` is the caller's to free with picture_rows_deinit(); zeroed when it fails. */
enum error_code picture_encoder_rows(struct picture_encoder *encoder, const struct picture *picture,
                                     struct picture_rows *out, struct error *err);
void picture_rows_deinit(struct picture_rows *rows);
