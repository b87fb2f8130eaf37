/* Monotonic time. Only shells read clocks; deciding code is given the time. */
#pragma once

#include <stdint.h>

uint64_t clock_now_ns(void);
