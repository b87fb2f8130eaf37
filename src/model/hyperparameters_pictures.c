/* What a family that takes pictures does with their rows. */
#include "model/gguf_file.h"
#include "model/hyperparameters_reader.h"

/* Where rows of pictures have positions on several axes. */
static void read_rope_axes(struct hyperparameters_reader *reader, const struct architecture *a,
                           struct hyperparameters *h)
{
    static const char suffix[] = "rope.dimension_sections";
    char key[128];
    uint64_t length = 0, pairs = 0;
    if (a->axes == AXES_NONE || reader->code || !hyperparameters_has(reader, suffix))
        return;
    h->rope_axes = a->axes;
    hyperparameters_key_of(reader, suffix, key);
    reader->code = gguf_file_array(reader->file, key, GGUF_ARRAY_U32, &length, reader->err);
    for (uint64_t i = 0; !reader->code && i < length && i < 4; i++)
        pairs += h->rope_sections[i] = gguf_file_array_u32(reader->file, key, i);
    if (!reader->code && (length != 4 || !pairs || pairs > h->n_rot / 2))
        hyperparameters_fail(reader, suffix,
                             "must be four counts of at most half of the "
                             "rotated dimensions together");
}

/* Parts of a picture's row that are added after the first layers. */
static void read_deepstack(struct hyperparameters_reader *reader, const struct architecture *a,
                           struct hyperparameters *h)
{
    if (a->adds_deepstack)
        hyperparameters_read_count_or(reader, "n_deepstack_layers", 0, h->n_layers - 1,
                                      &h->n_deepstack, 0);
}

void hyperparameters_read_pictures(struct hyperparameters_reader *reader,
                                   const struct architecture *architecture,
                                   struct hyperparameters *h)
{
    read_rope_axes(reader, architecture, h);
    read_deepstack(reader, architecture, h);
    h->given_width = architecture->takes_pictures ? h->n_embd * (1 + h->n_deepstack) : 0;
    h->given_layers = h->n_deepstack ? h->n_deepstack : 1;
}
