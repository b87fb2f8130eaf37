/* AMX's tile instructions in plain C, by Intel's definition, for the AMX kernel on any processor:
 * include this before it. What a processor would refuse (#UD, #GP) is asserted. Tiles are a
 * thread's own. */
#pragma once

#include <stddef.h>

#define AMX_TILES
#define AMX_IS_THERE() 1
#define AMX_CONFIGURE(shapes) amx_standin_configure(shapes)
#define AMX_RELEASE() amx_standin_release()
#define AMX_SHAPES(to) amx_standin_shapes(to)
#define AMX_ZERO(tile) amx_standin_zero(tile)
#define AMX_LOAD(tile, from, step) amx_standin_load(tile, from, (ptrdiff_t)(step))
#define AMX_STORE(tile, to, step) amx_standin_store(tile, to, step)
#define AMX_DOT_SIGNED(to, x, w) amx_standin_dot(to, x, w, 1)
#define AMX_DOT_UNSIGNED(to, x, w) amx_standin_dot(to, x, w, 0)

#include "kernels/product_amx_tiles.h"

/* How many tiles have a shape: none, outside a product. */
int amx_standin_tiles(void);

void amx_standin_configure(const struct amx_shapes *shapes);       /* LDTILECFG */
void amx_standin_release(void);                                    /* TILERELEASE */
void amx_standin_shapes(struct amx_shapes *to);                    /* STTILECFG */
void amx_standin_zero(int tile);                                   /* TILEZERO */
void amx_standin_load(int tile, const void *from, ptrdiff_t step); /* TILELOADD */
void amx_standin_store(int tile, void *to, ptrdiff_t step);        /* TILESTORED */
void amx_standin_dot(int to, int a, int b, int b_has_sign);        /* TDPBSSD, TDPBSUD */
