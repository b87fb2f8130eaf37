/* Where `medley doctor` looks besides the machine itself (doctor/facts.h). */
#pragma once

#include "doctor/findings.h"
#include "gpu/gpu.h"

/* Devices, and the backends that a card of this machine could use. */
void doctor_look_at_devices(const struct gpu *gpu, uint32_t n_cards, struct findings *findings);
/* What ./dev found of the host's drivers (MEDLEY_HOST_DRIVER), a line each; NULL: nothing. */
void doctor_look_at_host_driver(const char *lines, struct findings *findings);
/* Asks this machine's node, if it runs, about its peers and alerts; whether it runs. */
bool doctor_look_at_cluster(struct findings *findings);

/* Models that lie in small pages of memory; what requests of Ollama's models here begin with, and
 * what of it is not used. */
void doctor_look_at_models(struct findings *findings);
