/* The parts of sandbox_enter(), one file each. */
#pragma once

#include "sandbox/sandbox.h"

int landlock_version(void); /* 0: the kernel has none, or it is switched off */
/* Needs no_new_privs. */
enum error_code landlock_enter(const struct sandbox_rules *rules, int version, struct error *err);

bool calls_supported(void);
enum error_code calls_enter(struct error *err);
