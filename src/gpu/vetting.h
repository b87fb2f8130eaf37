/* Decides how each device that was found comes to be trusted, before any is opened: what the
 * registry remembers, what children say, or verification in this process. Then remembers what came
 * of it.
 *
 *   registry: passed, same key, fresh   a short check in this process (VET_QUICK)
 *   registry: crashed or hung, same key not tried (VET_REFUSED), unless gpu_options.verify; the CPU
 *   is always tried
 *   anything else, a prober, not a CPU  a child, all at once; VET_QUICK or VET_REFUSED
 *   anything else                       full verification in this process (VET_FULL)
 *
 * Backends are vetted first, in the same way: a row whose info has no name stands for loading its
 * backend and listing the devices, which must not crash or hang either. What a child may do then,
 * this process does.
 *
 * A row of the table is one device. The registry is read once, before all vetting, and written at
 * the end of each. */
#pragma once

#include "gpu/backends.h"
#include "gpu/registry.h"

enum vet_verdict { VET_FULL, VET_QUICK, VET_REFUSED };

struct vet {
    struct device_info info; /* given */
    uint32_t index;          /* given: in its backend's list */

    enum vet_verdict verdict; /* found */
    char reason[256];         /* of VET_REFUSED */
    struct device_verification verification;
    bool calibrated;
    struct device_calibration calibration;
    bool lists_none; /* of a backend: as far as the registry remembers */

    struct registry_entry
        change; /* what the registry is to learn; result REGISTRY_UNKNOWN: nothing */
};

/* `known`: what the registry remembers; may be empty. */
void vet_devices(struct vet *vets, uint32_t count, const struct registry *known,
                 const struct gpu_options *options);

/* Tells the registry whether the backend listed any device, where that is news. */
void vet_note_list(const struct backend *backend, bool lists_none, const struct registry *known,
                   const struct gpu_options *options);

/* What came of opening it: `reason` NULL when it is in use. `hung`: it did not answer. */
void vet_outcome(struct vet *vet, const char *reason, bool hung);

/* Tells the registry what is new. Fails where that cannot be written, which is no reason to
 * stop. */
enum error_code vet_remember(const struct vet *vets, uint32_t count,
                             const struct gpu_options *options, struct error *err);
