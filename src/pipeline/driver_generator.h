/* A driver of this process as a generator: for those who submit requests and do not care where
 * they are answered. */
#pragma once

#include "request/generator.h"

struct driver;

struct driver_generator {
    struct generator base;
    struct driver *driver; /* must outlive it */
};

void generator_of_driver(struct driver_generator *out, struct driver *driver);
