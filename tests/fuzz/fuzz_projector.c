/* A projector of any bytes: opened or refused with a text. What is opened has finite numbers and
 * its weights within the file, and makes of every size of picture no more rows than it says, each
 * patch once. */
#include "fuzz.h"

#include "model/picture_fit.h"
#include "model/projector.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATCHES_MAX = 1 << 16 };

static void check_form(const struct projector *projector)
{
    const struct projector_form *form = projector_form(projector);
    FUZZ_CHECK(form->n_embd && form->n_head && form->n_embd % form->n_head == 0 && form->n_ff &&
               form->n_out && form->n_blocks && form->patch_size && form->merge);
    FUZZ_CHECK(form->n_deep <= form->n_blocks && form->pixels_min <= form->pixels_max);
    FUZZ_CHECK(isfinite(form->epsilon) && form->epsilon > 0);
    for (int i = 0; i < 3; i++)
        FUZZ_CHECK(isfinite(form->mean[i]) && form->std[i] > 0);
    FUZZ_CHECK(projector_weight_bytes(projector) <= gguf_file_size(projector_file(projector)));
    FUZZ_CHECK(projector_kind_name(projector) && projector_text_before(projector) &&
               projector_text_after(projector));
}

static void check_order(const struct projector_form *form, const struct picture_grid *grid)
{
    const uint32_t n = picture_grid_patches(grid), n_rows = picture_grid_row_count(form, grid);
    struct picture_windows windows[PICTURE_WINDOW_SIZES];
    uint64_t n_in_windows = 0;
    picture_grid_windows(form, grid, windows);
    for (int i = 0; i < PICTURE_WINDOW_SIZES; i++)
        n_in_windows += (uint64_t)windows[i].count * windows[i].patches;
    FUZZ_CHECK(n && n_in_windows == n);
    if (n > PATCHES_MAX)
        return;
    uint32_t *order = malloc(n * sizeof *order);
    uint8_t *seen = calloc(n, 1);
    FUZZ_CHECK(order && seen);
    picture_grid_order(form, grid, order);
    for (uint32_t i = 0; i < n; i++) {
        FUZZ_CHECK(order[i] < n && !seen[order[i]]);
        FUZZ_CHECK(picture_grid_row_of(form, grid, order[i]) < n_rows);
        seen[order[i]] = 1;
    }
    free(order);
    free(seen);
}

static void check_picture(const struct projector *projector, uint32_t width, uint32_t height)
{
    const struct projector_form *form = projector_form(projector);
    struct picture_grid grid;
    struct projector_rows rows;
    struct error err = {0};
    const enum error_code code = projector_rows(projector, width, height, &rows, &err);
    FUZZ_CHECK((code == ERROR_NONE) == (err.text[0] == 0));
    if (code)
        return;
    FUZZ_CHECK(rows.n_rows > 0 && rows.n_rows <= projector_rows_max(projector));
    FUZZ_CHECK(rows.width == form->n_out * (1 + form->n_deep));
    FUZZ_CHECK(!rows.grid_width || rows.grid_width * rows.grid_height == rows.n_rows);
    FUZZ_CHECK(picture_grid_make(form, width, height, &grid, &err) == ERROR_NONE);
    check_order(form, &grid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t sizes[][2] = {{0, 1},     {1, 1},         {1, 200}, {200, 1},    {97, 61},
                                        {640, 480}, {32768, 32768}, {1, 201}, {32768, 163}};
    struct gguf_file *file = NULL;
    struct projector *projector = NULL;
    struct error err = {0};
    if (gguf_file_open_memory(data, size, &file, &err) != ERROR_NONE)
        return 0;
    const enum error_code code = projector_open_file(file, &projector, &err);
    FUZZ_CHECK((code == ERROR_NONE) == (err.text[0] == 0) &&
               (code == ERROR_NONE) == (projector != NULL));
    if (code)
        return 0;
    check_form(projector);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_picture(projector, sizes[i][0], sizes[i][1]);
    projector_limit_rows(projector, 1 + data[size / 2]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_picture(projector, sizes[i][0], sizes[i][1]);
    projector_close(projector);
    return 0;
}
