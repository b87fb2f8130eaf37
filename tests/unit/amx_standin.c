#include "amx_standin.h"

#include <assert.h>
#include <string.h>

enum { PALETTE = 1, TILES = 8, ROWS_MAX = 16, ROW_BYTES_MAX = 64 };

/* What lies behind a tile's shape is zero. */
static _Thread_local struct {
    struct amx_shapes shapes; /* of palette 0: there are no tiles */
    uint8_t tiles[TILES][ROWS_MAX][ROW_BYTES_MAX];
} amx;

/* ---- shapes ---- */

int amx_standin_tiles(void)
{
    int n = 0;
    for (int i = 0; i < TILES; i++)
        n += amx.shapes.palette && amx.shapes.rows[i];
    return n;
}

/* Tiles become zero. #GP: another palette, reserved bytes, a shape of one side only or too large,
 * one of a tile that is not there. */
void amx_standin_configure(const struct amx_shapes *shapes)
{
    static_assert(sizeof *shapes == 64 && offsetof(struct amx_shapes, row_bytes) == 16 &&
                      offsetof(struct amx_shapes, rows) == 48,
                  "as LDTILECFG reads it");
    assert(shapes->palette == PALETTE && shapes->start_row == 0);
    for (size_t i = 0; i < sizeof shapes->reserved; i++)
        assert(shapes->reserved[i] == 0);
    for (int i = 0; i < 16; i++) {
        assert(!shapes->rows[i] == !shapes->row_bytes[i]);
        assert(shapes->rows[i] <= (i < TILES ? ROWS_MAX : 0));
        assert(shapes->row_bytes[i] <= (i < TILES ? ROW_BYTES_MAX : 0));
    }
    memset(&amx, 0, sizeof amx);
    amx.shapes = *shapes;
}

void amx_standin_release(void)
{
    memset(&amx, 0, sizeof amx);
}

void amx_standin_shapes(struct amx_shapes *to)
{
    *to = amx.shapes;
}

static int rows_of(int tile)
{
    assert(tile >= 0 && tile < TILES && amx.shapes.palette); /* #UD */
    assert(amx.shapes.rows[tile]);                           /* #UD: it has no shape */
    return amx.shapes.rows[tile];
}

static int row_bytes_of(int tile)
{
    return rows_of(tile) ? amx.shapes.row_bytes[tile] : 0;
}

/* ---- memory ---- */

void amx_standin_zero(int tile)
{
    memset(amx.tiles[tile], 0, rows_of(tile) ? sizeof amx.tiles[tile] : 0);
}

void amx_standin_load(int tile, const void *from, ptrdiff_t step)
{
    amx_standin_zero(tile);
    for (int row = 0; row < rows_of(tile); row++)
        memcpy(amx.tiles[tile][row], (const char *)from + row * step, (size_t)row_bytes_of(tile));
}

void amx_standin_store(int tile, void *to, ptrdiff_t step)
{
    for (int row = 0; row < rows_of(tile); row++)
        memcpy((char *)to + row * step, amx.tiles[tile][row], (size_t)row_bytes_of(tile));
}

/* ---- products ---- */

/* to[m][n] += a[m][4 k + i] b[k][4 n + i], for k and i. Sums wrap at 32 bits. */
void amx_standin_dot(int to, int a, int b, int b_has_sign)
{
    assert(to != a && to != b && a != b); /* #UD, and what is next */
    assert(row_bytes_of(to) % 4 == 0 && row_bytes_of(a) % 4 == 0 && row_bytes_of(b) % 4 == 0);
    assert(rows_of(to) == rows_of(a) && row_bytes_of(to) == row_bytes_of(b));
    assert(row_bytes_of(a) / 4 == rows_of(b));
    for (int m = 0; m < rows_of(to); m++) {
        for (int n = 0; n < row_bytes_of(to) / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &amx.tiles[to][m][4 * n], sizeof sum);
            for (int i = 0; i < row_bytes_of(a); i++) {
                const uint8_t w = amx.tiles[b][i / 4][4 * n + i % 4];
                sum += (uint32_t)((int8_t)amx.tiles[a][m][i] * (b_has_sign ? (int8_t)w : w));
            }
            memcpy(&amx.tiles[to][m][4 * n], &sum, sizeof sum);
        }
    }
}
