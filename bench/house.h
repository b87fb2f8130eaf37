/* A made-up house of machines for the solver's benchmark: what people have, as measured, so no two
 * numbers are equal.
 *
 *     machine       part  devices: memory GiB, GB/s
 *     gaming PC     25 %  one or two cards of 8, 12, 16 or 24 GiB, 250 … 1000 GB/s; its processor,
 *                   32 GiB, 40 … 80 GB/s
 *     Apple         15 %  16 … 64 GiB, 100 … 400 GB/s
 *     laptop        30 %  12 GiB, 40 … 100 GB/s
 *     mini-PC       20 %  24 GiB, 30 … 70 GB/s
 *     small board   10 %  6 GiB, 8 … 15 GB/s
 *
 * Network by machine: 10 Gb/s wire 5 %, 2.5 Gb/s 15 %, 1 Gb/s 50 %, radio 30 % (20 … 80 MB/s, 1.5 …
 * 4 ms). A hop takes both machines' latencies and the narrower one's bandwidth, each pair up to 10
 * % off; devices of one machine 10 … 30 µs at 10 GB/s. The model: layers of two sizes in turn as in
 * Q4_K_M, 15 % apart, heavier at both ends, and a head of one and a half layers; 126 layers are 230
 * GB, 80 are 40 GB. Context 8192. */
#pragma once

#include "placement/problem.h"

struct house {
    struct placement_problem problem;
    struct placement_device *devices;
    struct placement_link *links;
    struct placement_layer *layers;
    uint64_t seed, counter;
};

/* Ends the program where there is no memory. The house is not to be copied. */
void house_make(struct house *house, uint64_t seed, uint32_t n_devices, uint32_t n_layers);
void house_deinit(struct house *house);
