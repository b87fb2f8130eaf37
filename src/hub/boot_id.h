/* Which start of this machine it is. */
#pragma once

enum { BOOT_ID_BYTES = 40 };

/* Another text after each start, the rest zeroed; "": the system does not say. */
void boot_id(char id[static BOOT_ID_BYTES]);
