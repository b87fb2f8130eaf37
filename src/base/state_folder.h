/* The folder where Medley keeps what this machine must not forget: MEDLEY_STATE_DIR, else
 * XDG_STATE_HOME/medley, else ~/.local/state/medley. An empty MEDLEY_STATE_DIR means that nothing
 * is kept. Nothing is made or opened here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* False: there is none, or its path is longer than size; then the path is "". */
bool state_folder(char *path, size_t size);

/* The same for a file in it, such as "devices.json". */
bool state_folder_file(const char *name, char *path, size_t size);
