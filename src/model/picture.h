/* A picture on its way into a prompt: pixels, and the rows that a projector's encoder makes of
 * them. Plain values: who makes one frees it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Decoded: 8 bits for each of red, green and blue, rows from top to bottom without padding. */
struct picture {
    uint32_t width, height; /* pixels */
    uint8_t *rgb;           /* [height x width x 3] */
};

/* Tokens from here on are no model's: one stands in the place of each row of a picture. */
#define PICTURE_TOKEN_FIRST (INT32_C(1) << 30)

/* What stands in the prompt for one picture, in place of tokens' embeddings. */
struct picture_rows {
    uint32_t n_rows;
    uint32_t width; /* numbers a row: the model's hidden width, times one and the model's count of
                       layers that take a part each ("deepstack"), in their order */
    float *rows;    /* [n_rows x width] */
    uint32_t grid_width, grid_height; /* in rows, where positions are of several axes; else 0 */
    bool
        is_whole; /* the rows see one another, those behind, too: one micro-batch has all of them */
};
