/* The one table of compute backends, and why one of them is not available. */
#pragma once

#include "gpu/gpu.h"

#include <ggml-backend.h>

struct backend {
    const char *name;            /* Medley's: --backend takes it, ids begin with it */
    const char *registry[2];     /* ggml's names for it */
    const char *stem;            /* of the plugin's file: libggml-STEM.so */
    const char *package;         /* Debian's, of the plugin; NULL: none */
    const char *device_files;    /* a pattern of files that it must be able to open; NULL: none */
    const char *needs;           /* in one phrase, what must be on the machine besides the plugin */
    const char *mend_plugin;     /* when the plugin is not there */
    const char *mend_device;     /* when it finds no device */
    const char *mend_permission; /* when device_files cannot be opened */
    const char *mend_driver;     /* when its driver is too old; NULL: mend_device */
    enum support_level support;
};

uint32_t backend_count(void);
const struct backend *backend_at(uint32_t index);
const struct backend *backend_find(const char *name); /* NULL: no backend of that name */
void backend_names(char *text, size_t size);          /* "cuda, hip, …" for messages */

/* What ggml has registered for it; NULL while it is not loaded. */
ggml_backend_reg_t backend_registry(const struct backend *backend);

/* False: its plugin is a package of another version than ggml, and must not be loaded; `reason`
 * says both versions, what serves meanwhile, and the mend. */
bool backend_fits(const struct backend *backend, char *reason, size_t size);

/* Is there a file that its devices appear as? True where that is not known. */
bool backend_has_device_files(const struct backend *backend);

/* Loads the backend's plugin unless it is there already. On failure `reason` says what is
 * missing and how to mend it. */
bool backend_load(const struct backend *backend, char *reason, size_t size);

/* Why a loaded backend has no device, in this order: a device file that may not be used, a driver
 * that is too old, what the backend said (`words`, plugins_last_error(); may be ""), what it needs.
 * Looks at device files. */
void backend_explain_no_device(const struct backend *backend, const char *words, char *reason,
                               size_t size);
