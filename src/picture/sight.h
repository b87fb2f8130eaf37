/* What lets a model see: its projector (model/projector.h), and the encoder of that on a device of
 * this process. A picture's file becomes rows that stand in a prompt (request/prompt_picture.h),
 * and a text with marks becomes a prompt with them.
 *
 *     sight_open(path, model, device, &sight, &err);
 *     sight_look(sight, bytes, size, &picture, &err);
 *     sight_encode(sight, tokenizer, &(struct sight_text){text, size, mark}, &picture, 1, &prompt,
 *                  &at, &err);
 *     … request.prompt = prompt.ids; request.pictures = &at; request.n_pictures = 1; …
 *     prompt_picture_release(picture);
 *     sight_close(sight);
 *
 * Any thread; pictures are encoded one at a time, on the device's own thread between the steps of
 * what else runs there. The model and the device must outlive it. */
#pragma once

#include "model/tokenizer.h"
#include "request/prompt_picture.h"

#include <limits.h>

struct device;
struct model;
struct projector;
struct sight_text {
    const char *text;
    size_t size;
    const char *mark; /* what stands for a picture in it */
};

/* An interface, so that who asks need not know encoders. */
struct sight {
    enum error_code (*look)(struct sight *sight, const void *bytes, size_t size,
                            struct prompt_picture **out, struct error *err);
    enum error_code (*encode)(const struct sight *sight, const struct tokenizer *tokenizer,
                              const struct sight_text *text, struct prompt_picture *const *pictures,
                              uint32_t n, struct token_list *out, struct request_picture *at,
                              struct error *err);
};

/* Opens the projector, and its encoder on `device`, or where there is no room on `fallback` (NULL:
 * nowhere). Memory is taken now, for the largest picture. */
enum error_code sight_open(const char *path, const struct model *model, struct device *device,
                           struct device *fallback, struct sight **out, struct error *err);
void sight_close(struct sight *sight); /* NULL is fine; nobody looks any more */
const struct projector *sight_projector(const struct sight *sight);
const struct device *sight_device(const struct sight *sight);

/* The bytes of a PNG, JPEG or WebP file (picture_process.h says what is refused). The caller
 * releases the picture. */
static inline enum error_code sight_look(struct sight *sight, const void *bytes, size_t size,
                                         struct prompt_picture **out, struct error *err)
{
    return sight->look(sight, bytes, size, out, err);
}

/* The prompt's tokens: those of the texts between marks, and for each mark what the projector has
 * before it, the picture's rows, and what it has after it. BOS is put in front where the model
 * wants it. `at`: [n]. ERROR_INVALID: there are not n marks, or more tokens than out->max. */
static inline enum error_code
sight_encode(const struct sight *sight, const struct tokenizer *tokenizer,
             const struct sight_text *text, struct prompt_picture *const *pictures, uint32_t n,
             struct token_list *out, struct request_picture *at, struct error *err)
{
    return sight->encode(sight, tokenizer, text, pictures, n, out, at, err);
}

/* Looks for a projector beside a model's file: `mmproj*.gguf` in its folder, or `*mmproj*.gguf`,
 * the first by name that fits the model. False: there is none. */
bool sight_find(const char *model_path, const struct model *model, char path[PATH_MAX]);
