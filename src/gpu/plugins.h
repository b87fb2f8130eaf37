/* Finds ggml's backend plugins and loads the one that fits this machine best.
 *
 * ggml_backend_load_all() is not used: it would also load plugins from the current folder
 * (somebody else's code), the RPC backend (a network client that Medley does not use), and
 * every GPU backend when only the CPU is wanted. A ggml that was linked with its backends
 * built in needs no plugin; ggml's registry has them then. */
#pragma once

#include "base/error.h"

#include <stdbool.h>

/* The folder of the plugins; "" when there is none. Constant; any thread. */
const char *plugins_folder(void);

/* Is there a file that plugin_load() would try? Loads nothing. */
bool plugin_is_there(const char *stem);

/* Loads libggml-STEM.so, or of libggml-STEM-*.so the one with the best score.
 * ERROR_NOT_FOUND: no such file. ERROR_UNSUPPORTED: a file is there but cannot be loaded,
 * with the dynamic linker's or ggml's reason. */
enum error_code plugin_load(const char *stem, struct error *err);

/* Sends ggml's log lines through base/log.h: its errors as warnings, the rest as debug. */
void plugins_log_hook(void);

/* The last error that ggml logged on this thread since plugins_forget_error(), printable and cut to
 * fit; "" for none. A backend whose driver refuses says so nowhere else. Good until the thread's
 * next call into ggml. */
void plugins_forget_error(void);
const char *plugins_last_error(void);
