/* Of which version is a backend's plugin?
 *
 * ggml's plugins carry no version, and one of another version than libggml reads other structures
 * than it is given: it may crash, or compute nonsense. Where a plugin is Debian's, the package's
 * version tells. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* False: `package` is installed, and not of version `ggml` ("0.27.0"). `reason` then says both
 * versions. True also where nothing is known of it: no such file, no such package. `status` is
 * dpkg's list of what is installed. Blocks while it reads. */
bool plugin_package_fits(const char *status, const char *package, const char *ggml, char *reason,
                         size_t size);
