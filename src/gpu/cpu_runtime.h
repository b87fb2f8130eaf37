/* Settings that the CPU backend's threading library reads once, when it is loaded. */
#pragma once

/* Call before any CPU plugin is loaded. Never overrides what the user has set. */
void cpu_runtime_prepare(void);
