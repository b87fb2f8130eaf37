/* What this machine's processor can do. */
#pragma once

#include <stdbool.h>

/* Instructions for AES. True where the system does not say: most have them. */
bool processor_has_aes(void);
