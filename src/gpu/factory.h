/* Which backends Medley tries on which platform, in which order. Pure data. */
#pragma once

enum platform { PLATFORM_LINUX, PLATFORM_WINDOWS, PLATFORM_MACOS, PLATFORM_ANDROID };

enum platform factory_platform(void); /* what this program was built for */
const char *factory_platform_name(enum platform platform);

/* Names of backends, best first, the CPU last; NULL-terminated. */
const char *const *factory_chain(enum platform platform);
