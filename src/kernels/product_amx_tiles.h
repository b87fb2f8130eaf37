/* AMX's tile instructions that the AMX kernel is written with. Tests compile it with a stand-in in
 * their place (tests/unit/amx_standin.h), which defines AMX_TILES.
 *
 * A tile is up to 16 rows of up to 64 bytes; its number is a literal, 0 to 7. Compilers do not know
 * that tiles are loaded from memory: a barrier makes them store what is loaded. */
#pragma once

#include <stdint.h>

struct amx_shapes { /* as LDTILECFG reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#if !defined(AMX_TILES)
#define AMX_TILES

#include "kernels/amx_permission.h"

#include <immintrin.h>

/* The processor has tiles and products of them with integers (CPUID), and the system saves them
 * (XCR0) and lets us use them. */
#define AMX_IS_THERE()                                                                             \
    (__builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&                   \
     amx_permission_ask())
#define AMX_BARRIER() __asm__ volatile("" ::: "memory")
#define AMX_CONFIGURE(shapes)                                                                      \
    do {                                                                                           \
        AMX_BARRIER();                                                                             \
        _tile_loadconfig(shapes);                                                                  \
    } while (0)
#define AMX_RELEASE() _tile_release()
#define AMX_SHAPES(to) _tile_storeconfig(to)
#define AMX_ZERO(tile) _tile_zero(tile)
/* Row i from `from` + i * step, and to it. */
#define AMX_LOAD(tile, from, step)                                                                 \
    do {                                                                                           \
        AMX_BARRIER();                                                                             \
        _tile_loadd(tile, from, step);                                                             \
    } while (0)
#define AMX_STORE(tile, to, step) _tile_stored(tile, to, step)
/* to[m][n] += the sum of x[m][k] w[k / 4][n][k % 4], numbers of 32 and of 8 bits: all with a sign,
 * or w without. */
#define AMX_DOT_SIGNED(to, x, w) _tile_dpbssd(to, x, w)
#define AMX_DOT_UNSIGNED(to, x, w) _tile_dpbsud(to, x, w)
#endif
