/* A process that holds keys. */
#pragma once

/* Leaves no core file, which would hold them, unless MEDLEY_CORES is 1 (for developers), and makes
 * files that no other user may read. What it starts inherits both. Call it before threads start. */
void private_process_begin(void);
