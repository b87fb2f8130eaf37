#include "placement/relax.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { FIRST = 1, LAST = 2, ENDS = 4 };
enum {
    UNITS_MAX = 1024,
    UNITS_OF_A_LAYER = 8,
    FEW_DEVICES = 12
}; /* few: a layer is a unit, they are searched soon */

/* ---- units ------------------------------------------------------------------------------ */

static uint64_t layer_bytes(const struct placement_tables *tables, uint32_t layer)
{
    return tables->bytes[layer + 1] - tables->bytes[layer];
}

/* Whole numbers for the layers between the first and the last, one of `parts` for the smallest; the
 * largest relative error. */
static double count_units(const struct placement_tables *tables, double smallest, uint32_t parts,
                          uint16_t *unit)
{
    const uint32_t n = tables->n_layers;
    double worst = 0;
    for (uint32_t layer = 0; layer < n; layer++) {
        const bool end = layer == 0 || layer + 1 == n;
        const double exact =
            end || smallest <= 0 ? parts : (double)layer_bytes(tables, layer) / smallest * parts;
        const double rounded = fmin(fmax(1, round(exact)), UNITS_MAX);
        worst = fmax(worst, fabs(rounded - exact) / exact);
        unit[layer + 1] = (uint16_t)fmin(unit[layer] + rounded, UINT16_MAX);
    }
    return worst;
}

static void choose_units(struct relax *relax)
{
    const struct placement_tables *tables = relax->tables;
    double smallest = INFINITY, error = INFINITY;
    uint32_t parts = 1;
    for (uint32_t layer = 1; layer + 1 < tables->n_layers; layer++)
        smallest = fmin(smallest, (double)layer_bytes(tables, layer));
    smallest = smallest < INFINITY ? smallest : 0;
    const uint32_t most = tables->n_devices > FEW_DEVICES ? UNITS_OF_A_LAYER : 1;
    for (uint32_t tried = 1; tried <= most && error > 0.01; tried++) {
        const double found = count_units(tables, smallest, tried, relax->unit);
        if (found < error && (tried == 1 || relax->unit[tables->n_layers] <= UNITS_MAX)) {
            error = found;
            parts = tried;
        }
    }
    count_units(tables, smallest, parts, relax->unit);
    if (relax->unit[tables->n_layers] >
        2 * UNITS_MAX) { /* layers too unlike each other: one is one */
        for (uint32_t layer = 0; layer < tables->n_layers; layer++)
            relax->unit[layer + 1] = (uint16_t)(layer + 1);
    }
    relax->units = relax->unit[tables->n_layers];
}

/* ---- one device ------------------------------------------------------------------------- */

static double *cells_of(const struct relax *relax, uint32_t node, uint32_t ends)
{
    return relax->table + relax->cells[node] + (uint64_t)ends * (relax->most[node] + 1);
}

static uint32_t relax_most_units(struct relax *relax, uint32_t i, double limit_s)
{
    uint32_t most = 0;
    tables_windows(relax->tables, relax->devices[i], limit_s, relax->low);
    for (uint32_t b = 1; b <= relax->tables->n_layers; b++) {
        const uint32_t units = (uint32_t)(relax->unit[b] - relax->unit[relax->low[b]]);
        most = units > most ? units : most;
    }
    return tables_holds_all(relax->tables, relax->devices[i]) ? relax->units : most;
}

static void relax_note(double *cell, double seconds)
{
    if (seconds < *cell)
        *cell = seconds;
}

/* After relax_most_units() of the same device, which left its windows in `low`. */
static void relax_fill_device(struct relax *relax, uint32_t i, double limit_s)
{
    const struct placement_tables *tables = relax->tables;
    const uint32_t n_layers = tables->n_layers;
    const double *time = tables_time(tables, relax->devices[i]);
    const double launch_s = tables->launch[relax->devices[i]];
    double *between = cells_of(relax, i, 0), *first = cells_of(relax, i, FIRST),
           *last = cells_of(relax, i, LAST);
    for (uint32_t b = 1; b <= n_layers; b++) {
        for (uint32_t a = relax->low[b]; a < b; a++) {
            const uint32_t units = (uint32_t)(relax->unit[b] - relax->unit[a]);
            const double seconds =
                launch_s + time[b] - time[a] - (relax->price[b] - relax->price[a]);
            if (a > 0 && b < n_layers)
                relax_note(&between[units], seconds);
            else if (b < n_layers)
                relax_note(&first[units], seconds - relax->moats.back_first[i] / 2);
            else if (a > 0)
                relax_note(&last[units], seconds - relax->moats.back_last[i] / 2);
        }
    }
    if (tables_holds_all(tables, relax->devices[i]) && launch_s + time[n_layers] < limit_s)
        relax_note(&cells_of(relax, i, FIRST | LAST)[relax->units], launch_s + time[n_layers]);
}

/* ---- sets ------------------------------------------------------------------------------- */

/* out[u1 + u2] = min(left[u1] + right[u2] + moats_s), up to `most`. */
static void relax_convolve(const double *left, uint32_t n_left, const double *right,
                           uint32_t n_right, double moats_s, double *out, uint32_t most)
{
    for (uint32_t i = 0; i <= n_left && i <= most; i++) {
        if (!(left[i] < INFINITY))
            continue;
        const double base_s = left[i] + moats_s;
        const uint32_t n = n_right < most - i ? n_right : most - i;
        double *to = out + i;
        for (uint32_t j = 0; j <= n; j++) {
            const double seconds = base_s + right[j];
            to[j] = seconds < to[j] ? seconds : to[j];
        }
    }
}

static void relax_keep(const double *from, uint32_t n, double moat_s, double *out)
{
    for (uint32_t i = 0; i <= n; i++)
        out[i] = from[i] + moat_s < out[i] ? from[i] + moat_s : out[i];
}

static double moats_of(const struct relax *relax, uint32_t node)
{
    return 2 * relax->moats.moat_s[node];
}

static void fill_set(struct relax *relax, uint32_t node)
{
    const uint32_t left = relax->moats.left[node], right = relax->moats.right[node];
    const uint32_t n_left = relax->most[left], n_right = relax->most[right],
                   most = relax->most[node];
    const double moats_s = moats_of(relax, left) + moats_of(relax, right);
    for (uint32_t ends = 0; ends < ENDS; ends++) {
        double *out = cells_of(relax, node, ends);
        for (uint32_t part = 0; part < ENDS; part++) {
            if ((part & ends) != part)
                continue;
            const double *a = cells_of(relax, left, part), *b = cells_of(relax, right, ends ^ part);
            if (n_left <= n_right)
                relax_convolve(a, n_left, b, n_right, moats_s, out, most);
            else
                relax_convolve(b, n_right, a, n_left, moats_s, out, most);
        }
        if (!relax->must[right])
            relax_keep(cells_of(relax, left, ends), n_left, moats_of(relax, left), out);
        if (!relax->must[left])
            relax_keep(cells_of(relax, right, ends), n_right, moats_of(relax, right), out);
    }
}

/* The whole model on devices of both parts. */
static double whole_of(const struct relax *relax, uint32_t node)
{
    const uint32_t left = relax->moats.left[node], right = relax->moats.right[node],
                   all = relax->units;
    double least_s = INFINITY;
    for (uint32_t part = 0; part < ENDS; part++) {
        const double *a = cells_of(relax, left, part),
                     *b = cells_of(relax, right, (FIRST | LAST) ^ part);
        for (uint32_t i = 0; i <= relax->most[left] && i <= all; i++) {
            if (all - i <= relax->most[right] && a[i] + b[all - i] < least_s)
                least_s = a[i] + b[all - i];
        }
    }
    return least_s + moats_of(relax, left) + moats_of(relax, right);
}

/* ---- all -------------------------------------------------------------------------------- */

/* Sizes and places of the tables; how many cells they need. */
static uint64_t relax_lay_out(struct relax *relax, double limit_s)
{
    const struct moats *moats = &relax->moats;
    uint64_t n_cells = 0;
    for (uint32_t node = 0; node < moats->n_nodes; node++) {
        if (node < relax->n) {
            relax->most[node] =
                relax->status[node] == RELAX_OUT ? 0 : relax_most_units(relax, node, limit_s);
            relax->must[node] = relax->status[node] == RELAX_IN;
        } else {
            const uint32_t both = relax->most[moats->left[node]] + relax->most[moats->right[node]];
            relax->most[node] = both < relax->units ? both : relax->units;
            relax->must[node] = relax->must[moats->left[node]] + relax->must[moats->right[node]];
        }
        relax->cells[node] = n_cells;
        n_cells += (uint64_t)ENDS * (relax->most[node] + 1);
    }
    return n_cells;
}

double relax_round(struct relax *relax, double limit_s)
{
    const uint64_t n_cells = relax_lay_out(relax, limit_s);
    double least_s = INFINITY;
    uint32_t must = 0;
    for (uint64_t i = 0; i < n_cells; i++)
        relax->table[i] = INFINITY;
    for (uint32_t i = 0; i < relax->n; i++)
        must += relax->status[i] == RELAX_IN;
    for (uint32_t node = 0; node < relax->moats.n_nodes; node++) {
        double seconds = INFINITY;
        if (node >= relax->n) {
            seconds = relax->must[node] == must ? whole_of(relax, node) : INFINITY;
            fill_set(relax, node);
        } else if (relax->status[node] != RELAX_OUT) {
            relax_most_units(relax, node, limit_s);
            relax_fill_device(relax, node, limit_s);
            if (relax->most[node] == relax->units && relax->must[node] == must)
                seconds = cells_of(relax, node, FIRST | LAST)[relax->units];
        }
        if (seconds < least_s) {
            least_s = seconds;
            relax->top = node;
        }
    }
    return least_s;
}

static enum error_code choose_devices(struct relax *relax, struct error *err)
{
    const struct placement_tables *tables = relax->tables;
    relax->devices = mem_new_array(tables->n_devices + 1, sizeof *relax->devices);
    relax->status = mem_new(tables->n_devices + 1);
    relax->unit = mem_new_array(tables->n_layers + 1, sizeof *relax->unit);
    relax->low = mem_new_array(tables->n_layers + 1, sizeof *relax->low);
    relax->price = mem_new_array(tables->n_layers + 1, sizeof *relax->price);
    if (!relax->devices || !relax->status || !relax->unit || !relax->low || !relax->price)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for the bound");
    choose_units(relax);
    for (uint32_t d = 0; d < tables->n_devices; d++) {
        relax->devices[relax->n] = d;
        relax->n += relax_most_units(relax, relax->n, INFINITY) > 0;
    }
    return ERROR_NONE;
}

enum error_code relax_init(struct relax *relax, const struct placement_tables *tables, bool freeze,
                           struct error *err)
{
    *relax = (struct relax){.tables = tables};
    enum error_code code = choose_devices(relax, err);
    if (!code)
        code = moats_init(&relax->moats, tables, relax->devices, relax->n, freeze, err);
    const uint32_t n_nodes = relax->moats.n_nodes;
    if (!code) {
        relax->most = mem_new_array(2 * (uint64_t)n_nodes + 1, sizeof *relax->most);
        relax->cells = mem_new_array(n_nodes + 1, sizeof *relax->cells);
        if (!relax->most || !relax->cells)
            code = error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for the bound");
    }
    if (!code) {
        relax->must = relax->most + n_nodes;
        relax->n_cells = relax_lay_out(relax, INFINITY);
        relax->table = mem_new_array(relax->n_cells + 1, sizeof *relax->table);
        if (!relax->table)
            code = error_set(err, ERROR_NO_MEMORY,
                             "placement: not enough memory for the bound of %u devices", relax->n);
    }
    if (code)
        relax_deinit(relax);
    return code;
}

void relax_deinit(struct relax *relax)
{
    moats_deinit(&relax->moats);
    mem_free(relax->devices);
    mem_free(relax->status);
    mem_free(relax->unit);
    mem_free(relax->low);
    mem_free(relax->price);
    mem_free(relax->most);
    mem_free(relax->cells);
    mem_free(relax->table);
    *relax = (struct relax){0};
}

/* ---- which devices ---------------------------------------------------------------------- */

struct cell {
    uint32_t node, ends, units;
};

struct relax_reader {
    const struct relax *relax;
    struct cell stages[LIMIT_STAGES];
    uint32_t n;
    uint32_t first, last; /* places of the ends */
};

/* How a set's cell came about: its two parts; the second has no units where one part is all. */
static void take_apart(const struct relax *relax, struct cell cell, bool whole,
                       struct cell parts[2])
{
    const uint32_t left = relax->moats.left[cell.node], right = relax->moats.right[cell.node];
    double least_s = INFINITY;
    for (uint32_t ends = 0; ends < ENDS; ends++) {
        if ((ends & cell.ends) != ends)
            continue;
        const double *a = cells_of(relax, left, ends),
                     *b = cells_of(relax, right, cell.ends ^ ends);
        for (uint32_t i = 0; i <= relax->most[left] && i <= cell.units; i++) {
            if (cell.units - i <= relax->most[right] && a[i] + b[cell.units - i] < least_s) {
                least_s = a[i] + b[cell.units - i];
                parts[0] = (struct cell){left, ends, i};
                parts[1] = (struct cell){right, cell.ends ^ ends, cell.units - i};
            }
        }
    }
    least_s += moats_of(relax, left) + moats_of(relax, right);
    for (uint32_t side = 0; side < 2 && !whole; side++) {
        const uint32_t one = side ? right : left, other = side ? left : right;
        if (relax->must[other] || cell.units > relax->most[one])
            continue;
        const double seconds = cells_of(relax, one, cell.ends)[cell.units] + moats_of(relax, one);
        if (seconds < least_s) {
            least_s = seconds;
            parts[0] = (struct cell){one, cell.ends, cell.units};
            parts[1] = (struct cell){0};
        }
    }
}

static void read_cell(struct relax_reader *reader, struct cell cell, bool whole)
{
    while (cell.node >= reader->relax->n) {
        struct cell parts[2] = {0};
        take_apart(reader->relax, cell, whole, parts);
        whole = false;
        if (parts[1].units)
            read_cell(reader, parts[1], false);
        cell = parts[0];
    }
    if (reader->n < LIMIT_STAGES) {
        reader->first = cell.ends & FIRST ? reader->n : reader->first;
        reader->last = cell.ends & LAST ? reader->n : reader->last;
        reader->stages[reader->n] = cell;
    }
    reader->n++;
}

uint32_t relax_devices(const struct relax *relax, uint32_t devices[LIMIT_STAGES])
{
    uint32_t n = 0;
    struct relax_reader reader = {.relax = relax};
    read_cell(&reader, (struct cell){relax->top, FIRST | LAST, relax->units}, true);
    if (reader.n > LIMIT_STAGES)
        return 0;
    for (uint32_t i = 0; i < reader.n; i++) { /* round the tour, from the first layer's device */
        const uint32_t at = (reader.first + i) % reader.n;
        if (at != reader.last || reader.first == reader.last)
            devices[n++] = relax->devices[reader.stages[at].node];
    }
    if (reader.first != reader.last)
        devices[n++] = relax->devices[reader.stages[reader.last].node];
    return n;
}

/* ---- prices ------------------------------------------------------------------------------ */

/* Takes 1 from each layer of the window that the cell came from. */
static void relax_take_layers(struct relax *relax, struct cell cell, double limit_s,
                              double *missing)
{
    const uint32_t n_layers = relax->tables->n_layers;
    const double *time = tables_time(relax->tables, relax->devices[cell.node]);
    uint32_t first = 0, end = 0;
    double least_s = INFINITY;
    relax_most_units(relax, cell.node, limit_s);
    for (uint32_t b = 1; b <= n_layers; b++) {
        for (uint32_t a = relax->low[b]; a < b; a++) {
            const uint32_t ends = (a == 0 ? FIRST : 0) | (b == n_layers ? LAST : 0);
            const double seconds = time[b] - time[a] - (relax->price[b] - relax->price[a]);
            if (ends == cell.ends && (uint32_t)(relax->unit[b] - relax->unit[a]) == cell.units &&
                seconds < least_s) {
                least_s = seconds;
                first = a;
                end = b;
            }
        }
    }
    for (uint32_t layer = first; layer < end; layer++)
        missing[layer]--;
}

/* Moves the prices along `missing`; their sum stays 0, which a price for each unit does not
 * change. */
static void move_prices(struct relax *relax, const double *from, const double *missing,
                        double step_s)
{
    const uint32_t n = relax->tables->n_layers;
    for (uint32_t layer = 0; layer < n; layer++)
        relax->price[layer + 1] =
            relax->price[layer] + from[layer + 1] - from[layer] + step_s * missing[layer];
    const double per_unit_s = relax->price[n] / relax->units;
    for (uint32_t b = 1; b <= n; b++)
        relax->price[b] -= per_unit_s * relax->unit[b];
    relax->price[n] = 0;
}

bool relax_sharpen(struct relax *relax, double limit_s, double target_s, double *round_s)
{
    enum { STEPS = 60, PATIENCE = 4 };
    const uint32_t n = relax->tables->n_layers;
    double best_s = relax_round(relax, limit_s), now_s = best_s, part = 1;
    double missing[LIMIT_LAYERS], best[LIMIT_LAYERS + 1], from[LIMIT_LAYERS + 1];
    const double before_s = best_s;
    uint32_t since = 0;
    memcpy(best, relax->price, (n + 1) * sizeof *best);
    for (uint32_t step = 0; step < STEPS && now_s < target_s; step++) {
        struct relax_reader reader = {.relax = relax};
        double norm = 0;
        for (uint32_t layer = 0; layer < n; layer++)
            missing[layer] = 1;
        read_cell(&reader, (struct cell){relax->top, FIRST | LAST, relax->units}, true);
        for (uint32_t i = 0; i < reader.n && i < LIMIT_STAGES; i++)
            relax_take_layers(relax, reader.stages[i], limit_s, missing);
        for (uint32_t layer = 0; layer < n; layer++)
            norm += missing[layer] * missing[layer];
        if (norm <= 0 || reader.n > LIMIT_STAGES)
            break;
        memcpy(from, relax->price, (n + 1) * sizeof *from);
        move_prices(relax, from, missing, part * (target_s - now_s) / norm);
        now_s = relax_round(relax, limit_s);
        if (now_s > best_s) {
            best_s = now_s;
            since = 0;
            memcpy(best, relax->price, (n + 1) * sizeof *best);
        } else if (++since == PATIENCE) {
            since = 0;
            part /= 2;
            memcpy(relax->price, best, (n + 1) * sizeof *best);
            now_s = relax_round(relax, limit_s);
        }
    }
    memcpy(relax->price, best, (n + 1) * sizeof *best);
    *round_s = best_s;
    return best_s > before_s;
}
