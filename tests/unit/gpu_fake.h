/* A device of the tests: host memory behind a device_impl table, honest or lying in one way. */
#pragma once

#include "gpu/device_impl.h"

enum fake_fault {
    FAKE_HONEST,
    FAKE_NO_MEMORY,         /* claims 0 bytes */
    FAKE_FREE_ABOVE_TOTAL,  /* claims more free than there is */
    FAKE_ALLOC_FAILS,       /* gives nothing at all */
    FAKE_SMALLER_THAN_SAID, /* gives up to 4 MiB, claims 1 GiB */
    FAKE_WRAPS,             /* only the first 8 MiB of an allocation exist, the rest wraps around */
    FAKE_ALIASES,           /* every allocation is the same memory */
    FAKE_FLIPS_A_BIT,       /* of one byte of each read */
    FAKE_DROPS_WRITES,      /* the second and later pieces never arrive */
    FAKE_WRITE_FAILS,
    FAKE_READ_FAILS,
    FAKE_COPY_IS_OFF_BY_ONE,
    FAKE_SYNC_FAILS,
    FAKE_PRODUCT_IS_WRONG,
    FAKE_PRODUCT_IS_NAN,
    FAKE_PRODUCT_FAILS,
    FAKE_START_FAILS,
    FAKE_HANGS, /* in initialize, for ever */
    FAKE_FAULTS,
};

/* The family: what the test sets and what it finds out. */
struct fake_family {
    enum fake_fault fault;
    int n_allocated;     /* live allocations */
    int n_open;          /* initialised, not shut down */
    int n_direct;        /* copy_between calls */
    bool shares_no_path; /* copy_between answers ERROR_UNSUPPORTED */
};

extern const struct device_impl fake_impl;         /* everything */
extern const struct device_impl fake_impl_minimal; /* every optional operation NULL */
