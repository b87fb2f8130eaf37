/* What a node and a device's process say to each other beside the rings (children.h): one message
 * is one packet of a SOCK_SEQPACKET socket, little-endian, at most LIMIT_CHILD_WORD_BYTES.
 * Micro-batches do not come this way.
 *
 * The reader trusts nothing: counts, types and lengths are checked before they are used. Pure. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"
#include "engine/activation.h"
#include "gpu/gpu.h"
#include "pipeline/driver.h"
#include "pipeline/memory_ladder.h"

enum child_word_kind {
    /* to the process */
    CHILD_OPEN = 1, /* load stages; the rings' memory and the model's file come with it */
    CHILD_CLOSE,
    CHILD_BEAT,         /* are you there? and the duty to keep */
    CHILD_PIN,          /* weights of a lane are to stay loaded when it is closed … */
    CHILD_DROP,         /* … and need not any more */
    CHILD_MEASURE,      /* how fast is the device? */
    CHILD_MEASURE_STOP, /* there is other work */
    /* from it */
    CHILD_HELLO,  /* its device is open, or could not be */
    CHILD_OPENED, /* or could not be */
    CHILD_CLOSED,
    CHILD_ALIVE,    /* the answer to a beat, with what the device reads */
    CHILD_MEASURED, /* or could not be */
    CHILD_MEMORY,   /* a step of its ladder, or a form begins or ends to change */
};

struct child_stage {
    bool here;
    enum activation_type type; /* of messages to it */
    uint32_t n_layers;
    uint64_t bytes;     /* OPENED, MEMORY: what it takes */
    uint64_t row_bytes; /* OPENED: stage_kv_row_bytes() */
};

struct child_range { /* layers of a stage, counted from the model's first */
    uint32_t stage, first_layer, n_layers;
};
enum { CHILD_RANGES_MAX = 2 * LIMIT_STAGES };

struct child_word {
    enum child_word_kind kind;
    uint32_t lane; /* OPEN, CLOSE, OPENED, CLOSED, HOLD, MEMORY */

    uint64_t ring_bytes; /* OPEN: of each direction: first to the process, then from it */
    bool again;          /* what its slots held is lost */
    uint64_t instance, epoch;
    enum activation_type type;
    struct driver_options options;
    char path[4096];   /* the model's file, for messages: it comes with it, open */
    uint64_t model;    /* the same number: the same file, which is read once */
    uint32_t n_stages; /* OPEN, OPENED, MEMORY */
    struct child_stage stages[LIMIT_STAGES];

    uint32_t pin; /* HOLD, DROP: its number */
    uint32_t n_ranges;
    struct child_range ranges[CHILD_RANGES_MAX];

    double duty;                           /* BEAT; travels in thousandths */
    struct device_readings readings;       /* ALIVE */
    uint32_t budget_ms;                    /* MEASURE */
    struct device_calibration calibration; /* MEASURED; without peers */
    struct memory_step memory;             /* MEMORY */
    enum error_code code;                  /* HELLO, OPENED, MEASURED … */
    char text[ERROR_TEXT_MAX];             /* … with why not */
};

/* Appends to `out`, which is empty. */
void child_word_write(const struct child_word *word, struct buffer *out);
/* ERROR_INVALID: not such a message, or more or less than one. */
enum error_code child_word_read(const void *bytes, size_t size, struct child_word *out,
                                struct error *err);
