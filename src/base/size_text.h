/* Amounts for people's eyes: bytes, times and speeds of a network, with the unit that keeps the
 * number short.
 *
 *     printf("%s in %s\n", size_text(bytes).text, time_text(seconds).text); */
#pragma once

#include <stdint.h>

struct amount_text {
    char text[32];
};

struct amount_text size_text(uint64_t bytes); /* "512 B", "3.1 MiB", "11.8 GiB"; units of 1024 */
struct amount_text time_text(double seconds); /* "18.1 ms" */
struct amount_text
bandwidth_text(double bytes_per_s); /* in bits, as networks are sold: "2.5 Gb/s" */
