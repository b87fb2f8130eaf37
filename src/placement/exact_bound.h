/* The bound of exact.h, and which devices are alike. Private to the search. */
#pragma once

#include "placement/tables.h"

struct exact_device {
    uint32_t index;    /* of the problem's devices */
    double capacity;   /* work that one stage can hold at most, in w; 0: none */
    double rate;       /* least seconds per w, launch and hop spread over the capacity */
    double least;      /* the same without them */
    double fixed_s;    /* launch, and the cheapest hop that leads here */
    uint32_t twins;    /* the first device that is interchangeable with this one */
    uint32_t as_last;  /* the first device that is the same to whatever comes behind */
    uint32_t as_first; /* the first device that is the same to return to */
};

struct exact_bound {
    const struct placement_tables *tables;
    uint32_t n;                   /* devices that are searched */
    struct exact_device *devices; /* [n] */
    uint32_t *order;              /* [n] by rate; indices of `devices` */
    uint16_t *low;                /* [n * (n_layers + 1)] windows */
    double *work;                 /* [n_layers + 1] prefix sums of w */
    double *hop;                  /* [n * n] seconds; INFINITY: none, or too slow for the limit */
    double *back;                 /* [n * n] */
    bool cut;                     /* there are more devices than are searched */
};

/* Without the devices that out[n_devices] marks; NULL: none. */
enum error_code exact_bound_init(struct exact_bound *bound, const struct placement_tables *tables,
                                 const bool *out, struct error *err);
void exact_bound_deinit(struct exact_bound *bound);

/* For stages and links shorter than limit_s. */
void exact_bound_limit(struct exact_bound *bound, double limit_s);

/* rest[b]: what layers b … cost at least on devices that are not in `used` (bit i: devices[i]). */
void exact_bound_rest(const struct exact_bound *bound, uint64_t used, double *rest);
