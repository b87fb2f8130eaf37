#include "base/mem.h"
#include "model/model.h"
#include "model/picture_fit.h"
#include "model/projector_private.h"

#include <string.h>

/* ---- opening -------------------------------------------------------------------------------- */

enum error_code projector_open_file(struct gguf_file *file, struct projector **out,
                                    struct error *err)
{
    struct projector *projector = mem_new(sizeof *projector);
    if (!projector) {
        gguf_file_close(file);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a projector");
    }
    projector->file = file;
    enum error_code code = projector_read_form(file, &projector->form, err);
    if (!code)
        code = projector_find_all(projector, err);
    if (!code) {
        *out = projector;
        return ERROR_NONE;
    }
    if (err)
        error_wrap(err, "%s", gguf_file_path(file));
    projector_close(projector);
    return code;
}

enum error_code projector_open(const char *path, struct projector **out, struct error *err)
{
    struct gguf_file *file;
    enum error_code code = gguf_file_open(path, &file, err);
    return code ? code : projector_open_file(file, out, err);
}

void projector_close(struct projector *projector)
{
    if (!projector)
        return;
    mem_free(projector->blocks);
    gguf_file_close(projector->file);
    mem_free(projector);
}

/* ---- what is asked of it -------------------------------------------------------------------- */

const struct gguf_file *projector_file(const struct projector *projector)
{
    return projector->file;
}

const struct projector_form *projector_form(const struct projector *projector)
{
    return &projector->form;
}

const char *projector_kind_name(const struct projector *projector)
{
    return projector_types[projector->form.kind].name;
}

const struct gguf_tensor *projector_tensor(const struct projector *projector,
                                           enum projector_role role, uint32_t block)
{
    return role < PROJECTOR_BLOCK_FIRST ? projector->tensors[role] : projector->blocks[block][role];
}

uint64_t projector_weight_bytes(const struct projector *projector)
{
    uint64_t bytes = 0;
    for (int i = 0; i < PROJECTOR_BLOCK_FIRST; i++)
        bytes += projector->tensors[i] ? projector->tensors[i]->size : 0;
    for (uint32_t block = 0; block < projector->form.n_blocks; block++) {
        for (int i = PROJECTOR_BLOCK_FIRST; i < PROJECTOR_ROLES; i++)
            bytes += projector->blocks[block][i] ? projector->blocks[block][i]->size : 0;
    }
    return bytes;
}

const char *projector_text_before(const struct projector *projector)
{
    return projector_types[projector->form.kind].before;
}

const char *projector_text_after(const struct projector *projector)
{
    return projector_types[projector->form.kind].after;
}

enum error_code projector_check_model(const struct projector *projector, const struct model *model,
                                      struct error *err)
{
    const struct projector_type *type = &projector_types[projector->form.kind];
    const char *family = model_architecture(model)->name;
    const uint32_t takes = model_hyperparameters(model)->given_width,
                   makes = projector->form.n_out * (1 + projector->form.n_deep);
    bool is_made_for = false;
    for (size_t i = 0; i < sizeof type->families / sizeof *type->families; i++)
        is_made_for |= type->families[i] && !strcmp(type->families[i], family);
    if (!is_made_for)
        return error_set(err, ERROR_INVALID,
                         "the projector %s is of the type %s, and %s is a %s model: a projector "
                         "goes with the model it was made for",
                         gguf_file_path(projector->file), type->name, model_name(model), family);
    if (!takes)
        return error_set(err, ERROR_UNSUPPORTED, "pictures for %s models are not supported yet",
                         family);
    if (takes != makes)
        return error_set(err, ERROR_INVALID,
                         "the projector %s makes rows of %u numbers, and %s takes %u: a projector "
                         "goes with the model it was made for",
                         gguf_file_path(projector->file), makes, model_name(model), takes);
    return ERROR_NONE;
}

enum error_code projector_rows(const struct projector *projector, uint32_t width, uint32_t height,
                               struct projector_rows *out, struct error *err)
{
    struct picture_grid grid;
    const enum error_code code = picture_grid_make(&projector->form, width, height, &grid, err);
    if (code)
        return code;
    const struct projector_form *form = &projector->form;
    *out = (struct projector_rows){
        .n_rows = picture_grid_row_count(form, &grid),
        .width = form->n_out * (1 + form->n_deep),
        .is_whole = projector_types[form->kind].is_whole,
    };
    if (!form->image_size) { /* these models' positions are of several axes */
        out->grid_width = grid.columns / form->merge;
        out->grid_height = grid.rows / form->merge;
    }
    return ERROR_NONE;
}

uint32_t projector_rows_max(const struct projector *projector)
{
    struct picture_grid grids[PICTURE_LARGEST];
    picture_grid_largest(&projector->form, grids);
    return picture_grid_row_count(&projector->form, &grids[0]);
}

void projector_limit_rows(struct projector *projector, uint32_t n_rows)
{
    struct projector_form *form = &projector->form;
    const uint64_t of_row =
        (uint64_t)form->patch_size * form->patch_size * form->merge * form->merge;
    if (form->image_size || n_rows < 1 || n_rows * of_row >= form->pixels_max)
        return;
    form->pixels_max = n_rows * of_row;
    if (form->pixels_min > form->pixels_max)
        form->pixels_min = form->pixels_max;
}
