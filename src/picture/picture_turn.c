#include "picture/picture_turn.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* Which of the shown picture's axes run backwards, and whether they are exchanged: CIPA DC-008
 * 4.6.4. Row and column are those of the stored picture's first pixel row and column. */
static const struct turn {
    bool is_across; /* rows become columns */
    bool from_right, from_bottom;
} turns[] = {
    [1] = {false, false, false}, /* row at the top, column at the left */
    [2] = {false, true, false},  /* top, right */
    [3] = {false, true, true},   /* bottom, right */
    [4] = {false, false, true},  /* bottom, left */
    [5] = {true, false, false},  /* left, top */
    [6] = {true, true, false},   /* right, top */
    [7] = {true, true, true},    /* right, bottom */
    [8] = {true, false, true},   /* left, bottom */
};

bool picture_turn(struct picture *picture, uint32_t orientation)
{
    assert(orientation >= 1 && orientation <= 8);
    const struct turn *turn = &turns[orientation];
    const uint32_t width = turn->is_across ? picture->height : picture->width;
    const uint32_t height = turn->is_across ? picture->width : picture->height;
    if (orientation == 1)
        return true;
    uint8_t *rgb = mem_new_array((size_t)width * height, 3);
    if (!rgb)
        return false;
    for (uint32_t y = 0; y < picture->height; y++) {
        for (uint32_t x = 0; x < picture->width; x++) {
            uint32_t to_x = turn->is_across ? y : x, to_y = turn->is_across ? x : y;
            to_x = turn->from_right ? width - 1 - to_x : to_x;
            to_y = turn->from_bottom ? height - 1 - to_y : to_y;
            memcpy(rgb + 3 * ((size_t)to_y * width + to_x),
                   picture->rgb + 3 * ((size_t)y * picture->width + x), 3);
        }
    }
    mem_free(picture->rgb);
    *picture = (struct picture){width, height, rgb};
    return true;
}
