/* A machine's share of a gathering (gather.h) of one file: fetches units of it from the hub with
 * this machine's own client and token, says their SHA-256, and adds them to the hash of the whole.
 * A model in several files has a work for each.
 *
 *     gather_work_open(&what, &work, &err)
 *     gather_work_order(work, units, n, &err)         again and again: what is its own now
 *     gather_work_chain(work, &step)                  once an answer to the last one was polled
 *     gather_work_poll(work, &report)                 what has happened since
 *     gather_work_release(work)                       … report.is_released: report.part is the
 * caller's gather_work_close(work, drop)
 *
 * Bytes that are here stay when it is closed without `drop`, or killed, and are continued by the
 * next one, or by a pull of the whole file: they are in its FILE.gguf.part (hub/pull_some.h).
 *
 * Threads: the calls are one thread's; two of its own fetch and hash. */
#pragma once

#include "gathering/gather.h"

#include <limits.h>

struct gather_work;

enum { GATHER_NAME = 1024, GATHER_REPORT_UNITS = 256, GATHER_RANGES = 512 };

struct gather_file {        /* what is gathered */
    char name[GATHER_NAME]; /* hf:ORG/REPO/FILE.gguf, or ollama:NAME:TAG of the usual registry */
    uint64_t bytes;
    struct digest whole;  /* the hub's SHA-256 */
    uint32_t connections; /* 0: as usual */
};
/* A name that another machine may make this one ask for, and a size that a model may have. */
enum error_code gather_file_check(const struct gather_file *file, struct error *err);

struct gather_wanted {
    uint32_t index; /* the gathering's */
    struct gather_unit unit;
};

struct gather_sum {
    uint32_t index;
    struct digest digest;
};

struct gather_step { /* units [first, end), which are bytes [from, to) */
    uint32_t first, end;
    uint64_t from, to;
    struct digest_chain chain; /* before, or after */
};

struct gather_range { /* bytes [from, to) */
    uint64_t from, to;
};

struct gather_report {
    uint64_t here; /* bytes of its units */
    uint64_t bytes_per_s;
    uint32_t n_sums;
    struct gather_sum sums[GATHER_REPORT_UNITS]; /* each is said once */
    bool has_step;                               /* the last step is done: */
    struct gather_step step;
    bool has_looked;   /* said once, as soon as the file was found: what is here since earlier */
    uint32_t n_ranges; /* in order; the first GATHER_RANGES */
    struct gather_range ranges[GATHER_RANGES];
    bool is_released;
    char part[PATH_MAX];
    struct error problem; /* code: it cannot go on */
};

/* ERROR_INVALID: see gather_file_check(). Other problems come with a report. */
enum error_code gather_work_open(const struct gather_file *file, struct gather_work **out,
                                 struct error *err);
/* Without units it only looks. ERROR_INVALID: units that are not in the file, or too many. */
enum error_code gather_work_order(struct gather_work *work, const struct gather_wanted *wanted,
                                  uint32_t n, struct error *err);
/* ERROR_INVALID: not a range of units that are here and hashed. ERROR_BUSY: a step is under way. */
enum error_code gather_work_chain(struct gather_work *work, const struct gather_step *step,
                                  struct error *err);
void gather_work_poll(struct gather_work *work, struct gather_report *out);
void gather_work_release(struct gather_work *work);
/* Ends its threads, which takes a moment where the network is waited for. NULL is fine. */
void gather_work_close(struct gather_work *work, bool drop);
/* The same without waiting: to be asked again until true. */
bool gather_work_end(struct gather_work *work, bool drop);
