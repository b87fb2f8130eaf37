/* Monotonic time. Only shells read clocks; deciding code is given the time. */
#pragma once

#include <stdint.h>

uint64_t clock_now_ns(void);
/* Processor time that the calling thread has had: what it did itself, however busy the machine. */
uint64_t clock_thread_ns(void);
uint64_t clock_process_ns(void); /* all threads of the process */
