#include "pipeline/child_words.h"

#include "base/bytes.h"

#include <math.h>

enum { MAGIC = 0x3143444d }; /* "MDC1" */

/* ---- writing ---------------------------------------------------------------------------- */

static void put_text(const char *text, struct buffer *out)
{
    const size_t size = strlen(text);
    bytes_put(out, size, 2);
    buffer_append(out, text, size);
}

static void put_options(const struct driver_options *options, struct buffer *out)
{
    bytes_put(out, options->n_slots, 4);
    bytes_put(out, options->context, 4);
    bytes_put(out, options->batch_rows, 4);
    bytes_put(out, options->queue_max, 4);
    bytes_put(out, options->kv_type, 1);
    bytes_put(out, options->kv_is_chosen, 1);
    bytes_put(out, options->flash, 1);
    bytes_put(out, options->no_repack, 1);
    bytes_put(out, options->no_prefix_reuse, 1);
    bytes_put(out, options->weights_max, 8);
    bytes_put(out, options->cells, 4);
    bytes_put(out, options->checkpoints, 1);
    bytes_put(out, options->no_checkpoints, 1);
    bytes_put(out, (uint32_t)options->precision, 1);
    bytes_put(out, (uint32_t)options->precision_allowed, 1);
    bytes_put(out, options->rope.type, 1);
    bytes_put_float(out, options->rope.factor);
    bytes_put_float(out, options->rope.base);
    bytes_put(out, options->rope.n_original, 4);
}

static void put_stages(const struct child_word *word, struct buffer *out)
{
    bytes_put(out, word->n_stages, 4);
    for (uint32_t i = 0; i < word->n_stages; i++) {
        bytes_put(out, word->stages[i].here, 1);
        bytes_put(out, word->stages[i].type, 1);
        bytes_put(out, word->stages[i].n_layers, 4);
        bytes_put(out, word->stages[i].bytes, 8);
        bytes_put(out, word->stages[i].row_bytes, 8);
    }
}

static void put_pin(const struct child_word *word, struct buffer *out)
{
    bytes_put(out, word->pin, 4);
    bytes_put(out, word->n_ranges, 4);
    for (uint32_t i = 0; i < word->n_ranges; i++) {
        bytes_put(out, word->ranges[i].stage, 4);
        bytes_put(out, word->ranges[i].first_layer, 4);
        bytes_put(out, word->ranges[i].n_layers, 4);
    }
}

static void put_open(const struct child_word *word, struct buffer *out)
{
    bytes_put(out, word->ring_bytes, 8);
    bytes_put(out, word->again, 1);
    bytes_put(out, word->instance, 8);
    bytes_put(out, word->epoch, 8);
    bytes_put(out, word->type, 1);
    put_options(&word->options, out);
    put_text(word->path, out);
    bytes_put(out, word->model, 8);
    put_stages(word, out);
}

static void put_reading(const struct reading *reading, struct buffer *out)
{
    bytes_put(out, reading->valid, 1);
    bytes_put(out, reading->valid ? reading_whole(*reading) : 0, 8);
}

static void put_readings(const struct device_readings *readings, struct buffer *out)
{
    bytes_put(out, readings->memory.free_bytes, 8);
    bytes_put(out, readings->memory.total_bytes, 8);
    put_reading(&readings->temperature_mc, out);
    put_reading(&readings->power_mw, out);
    put_reading(&readings->clock_mhz, out);
}

static void put_outcome(const struct child_word *word, struct buffer *out)
{
    bytes_put(out, word->code, 2);
    put_text(word->text, out);
}

static void put_double(double value, struct buffer *out)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bytes_put(out, bits, 8);
}

static void put_measurement(const struct device_measurement *measurement, struct buffer *out)
{
    put_double(measurement->median, out);
    put_double(measurement->spread, out);
    bytes_put(out, measurement->n_runs, 4);
}

static void put_calibration(const struct device_calibration *calibration, struct buffer *out)
{
    bytes_put(out, calibration->unix_s, 8);
    bytes_put(out, calibration->is_short, 1);
    bytes_put(out, calibration->n_types, 4);
    for (uint32_t i = 0; i < calibration->n_types; i++) {
        put_text(calibration->types[i].name, out);
        put_measurement(&calibration->types[i].decode_bytes_per_s, out);
        put_measurement(&calibration->types[i].prefill_flops, out);
    }
    put_measurement(&calibration->write_bytes_per_s, out);
    put_measurement(&calibration->read_bytes_per_s, out);
    put_measurement(&calibration->launch_ns, out);
}

static void put_memory_step(const struct memory_step *memory, struct buffer *out)
{
    bytes_put(out, memory->step, 1);
    bytes_put(out, memory->form, 1);
    bytes_put(out, memory->is_changing, 1);
}

void child_word_write(const struct child_word *word, struct buffer *out)
{
    bytes_put(out, MAGIC, 4);
    bytes_put(out, word->kind, 4);
    bytes_put(out, word->lane, 4);
    switch (word->kind) {
    case CHILD_OPEN:
        put_open(word, out);
        break;
    case CHILD_BEAT:
        bytes_put(out, (uint32_t)lround(word->duty * 1000), 4);
        break;
    case CHILD_PIN:
        put_pin(word, out);
        break;
    case CHILD_DROP:
        bytes_put(out, word->pin, 4);
        break;
    case CHILD_MEASURE:
        bytes_put(out, word->budget_ms, 4);
        break;
    case CHILD_HELLO:
        put_outcome(word, out);
        break;
    case CHILD_MEASURED:
        put_outcome(word, out);
        put_calibration(&word->calibration, out);
        break;
    case CHILD_OPENED:
        put_outcome(word, out);
        put_stages(word, out);
        break;
    case CHILD_MEMORY:
        put_memory_step(&word->memory, out);
        put_stages(word, out);
        break;
    case CHILD_ALIVE:
        put_readings(&word->readings, out);
        break;
    case CHILD_CLOSE:
    case CHILD_CLOSED:
    case CHILD_MEASURE_STOP:
        break;
    }
}

/* ---- reading ---------------------------------------------------------------------------- */

static void get_text(struct bytes_reader *reader, char *text, size_t room)
{
    const size_t size = (size_t)bytes_get(reader, 2);
    const char *from = bytes_take(reader, size);
    text[0] = 0;
    if (!from || size >= room || memchr(from, 0, size)) {
        reader->short_ = true;
        return;
    }
    memcpy(text, from, size);
    text[size] = 0;
}

/* A number that must be at most `max`. */
static uint32_t get_below(struct bytes_reader *reader, unsigned n_bytes, uint32_t max)
{
    const uint64_t value = bytes_get(reader, n_bytes);
    if (value <= max)
        return (uint32_t)value;
    reader->short_ = true;
    return 0;
}

static void get_options(struct bytes_reader *reader, struct driver_options *options)
{
    options->n_slots = bytes_get_u32(reader);
    options->context = bytes_get_u32(reader);
    options->batch_rows = bytes_get_u32(reader);
    options->queue_max = bytes_get_u32(reader);
    options->kv_type = (enum kv_type)get_below(reader, 1, KV_TYPES - 1);
    options->kv_is_chosen = get_below(reader, 1, 1);
    options->flash = (enum flash_mode)get_below(reader, 1, FLASH_OFF);
    options->no_repack = get_below(reader, 1, 1);
    options->no_prefix_reuse = get_below(reader, 1, 1);
    options->weights_max = bytes_get(reader, 8);
    options->cells = get_below(reader, 4, LIMIT_POOL_CELLS);
    options->checkpoints = get_below(reader, 1, LIMIT_CHECKPOINTS);
    options->no_checkpoints = get_below(reader, 1, 1);
    options->precision = (int)get_below(reader, 1, UINT8_MAX);
    options->precision_allowed = (int)get_below(reader, 1, UINT8_MAX);
    options->rope.type = (enum rope_choice)get_below(reader, 1, ROPE_CHOOSE_YARN);
    options->rope.factor = bytes_get_float(reader);
    options->rope.base = bytes_get_float(reader);
    options->rope.n_original = get_below(reader, 4, LIMIT_CONTEXT);
}

static void get_stages(struct bytes_reader *reader, struct child_word *word)
{
    word->n_stages = get_below(reader, 4, LIMIT_STAGES);
    for (uint32_t i = 0; i < word->n_stages; i++) {
        word->stages[i].here = get_below(reader, 1, 1);
        word->stages[i].type = (enum activation_type)get_below(reader, 1, ACTIVATION_Q8);
        word->stages[i].n_layers = bytes_get_u32(reader);
        word->stages[i].bytes = bytes_get(reader, 8);
        word->stages[i].row_bytes = bytes_get(reader, 8);
    }
}

static void get_pin(struct bytes_reader *reader, struct child_word *word)
{
    word->pin = bytes_get_u32(reader);
    word->n_ranges = get_below(reader, 4, CHILD_RANGES_MAX);
    for (uint32_t i = 0; i < word->n_ranges; i++) {
        word->ranges[i].stage = get_below(reader, 4, LIMIT_STAGES - 1);
        word->ranges[i].first_layer = get_below(reader, 4, LIMIT_LAYERS);
        word->ranges[i].n_layers = get_below(reader, 4, LIMIT_LAYERS);
    }
}

static void get_open(struct bytes_reader *reader, struct child_word *word)
{
    word->ring_bytes = bytes_get(reader, 8);
    word->again = get_below(reader, 1, 1);
    word->instance = bytes_get(reader, 8);
    word->epoch = bytes_get(reader, 8);
    word->type = (enum activation_type)get_below(reader, 1, ACTIVATION_Q8);
    get_options(reader, &word->options);
    get_text(reader, word->path, sizeof word->path);
    word->model = bytes_get(reader, 8);
    get_stages(reader, word);
}

/* A child tells only what can be, and 0 where it knows nothing: anything else is no word of one. */
static struct reading get_reading(struct bytes_reader *reader, enum unit unit)
{
    const bool valid = get_below(reader, 1, 1);
    const uint64_t value = bytes_get(reader, 8);
    if (valid ? !unit_is_plausible(unit, (double)value) : value != 0)
        reader->short_ = true;
    return valid ? reading_of(unit, (double)value) : (struct reading){0};
}

static void get_readings(struct bytes_reader *reader, struct device_readings *readings)
{
    readings->memory.free_bytes = bytes_get(reader, 8);
    readings->memory.total_bytes = bytes_get(reader, 8);
    readings->temperature_mc = get_reading(reader, UNIT_MC);
    readings->power_mw = get_reading(reader, UNIT_MW);
    readings->clock_mhz = get_reading(reader, UNIT_MHZ);
}

static void get_outcome(struct bytes_reader *reader, struct child_word *word)
{
    word->code = (enum error_code)get_below(reader, 2, ERROR_INTERNAL);
    get_text(reader, word->text, sizeof word->text);
}

static double get_double(struct bytes_reader *reader)
{
    const uint64_t bits = bytes_get(reader, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* None is all zeros; one has a value that a device can have. The negations find what is not a
 * number, too. */
static void get_measurement(struct bytes_reader *reader, struct device_measurement *out)
{
    const double median = get_double(reader), spread = get_double(reader);
    const uint32_t n_runs = bytes_get_u32(reader);
    *out = (struct device_measurement){median, spread, n_runs};
    if (n_runs ? !(median > 0 && median < 1e18) || !(spread >= 0 && spread < 1e18)
               : !(median >= 0 && median <= 0 && spread >= 0 && spread <= 0))
        reader->short_ = true;
}

static void get_calibration(struct bytes_reader *reader, struct device_calibration *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    out->unix_s = bytes_get(reader, 8);
    out->is_short = get_below(reader, 1, 1);
    out->n_types = get_below(reader, 4, CALIBRATION_TYPES_MAX);
    for (uint32_t i = 0; i < out->n_types; i++) {
        struct calibration_type *type = &out->types[i];
        get_text(reader, type->name, sizeof type->name);
        if (!type->name[0] || type->name[strspn(type->name, plain)])
            reader->short_ = true;
        get_measurement(reader, &type->decode_bytes_per_s);
        get_measurement(reader, &type->prefill_flops);
    }
    get_measurement(reader, &out->write_bytes_per_s);
    get_measurement(reader, &out->read_bytes_per_s);
    get_measurement(reader, &out->launch_ns);
}

static void get_memory_step(struct bytes_reader *reader, struct memory_step *out)
{
    out->step = get_below(reader, 1, MEMORY_STEPS - 1);
    out->form = (enum memory_form)get_below(reader, 1, MEMORY_FORMS - 1);
    out->is_changing = get_below(reader, 1, 1);
}

static bool get_rest(struct bytes_reader *reader, struct child_word *word)
{
    switch (word->kind) {
    case CHILD_OPEN:
        get_open(reader, word);
        return true;
    case CHILD_BEAT:
        word->duty = (double)get_below(reader, 4, 1000) / 1000;
        return true;
    case CHILD_PIN:
        get_pin(reader, word);
        return true;
    case CHILD_DROP:
        word->pin = bytes_get_u32(reader);
        return true;
    case CHILD_MEASURE:
        word->budget_ms = bytes_get_u32(reader);
        return true;
    case CHILD_HELLO:
        get_outcome(reader, word);
        return true;
    case CHILD_MEASURED:
        get_outcome(reader, word);
        get_calibration(reader, &word->calibration);
        return true;
    case CHILD_OPENED:
        get_outcome(reader, word);
        get_stages(reader, word);
        return true;
    case CHILD_MEMORY:
        get_memory_step(reader, &word->memory);
        get_stages(reader, word);
        return true;
    case CHILD_ALIVE:
        get_readings(reader, &word->readings);
        return true;
    case CHILD_CLOSE:
    case CHILD_CLOSED:
    case CHILD_MEASURE_STOP:
        return true;
    }
    return false;
}

enum error_code child_word_read(const void *bytes, size_t size, struct child_word *out,
                                struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    memset(out, 0, sizeof *out);
    const uint32_t magic = bytes_get_u32(&reader);
    out->kind = (enum child_word_kind)bytes_get_u32(&reader);
    out->lane = bytes_get_u32(&reader);
    if (magic != MAGIC || !get_rest(&reader, out) || reader.short_ || reader.left)
        return error_set(err, ERROR_INVALID,
                         "malformed message between a device's process and its node");
    return ERROR_NONE;
}
