/* For loops that wait for another thread without sleeping. */
#pragma once

/* Tells the processor that this thread only waits: its core has more for others meanwhile. */
static inline void spin_pause(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}
