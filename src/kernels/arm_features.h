/* What a 64-bit ARM processor can do beyond the least of them. Pure; any thread. */
#pragma once

#include <stdbool.h>

/* Sums of four products of 8 bits (FEAT_DotProd). */
bool arm_has_dotprod(void);

/* Sums of eight products of 8 bits, of two by two rows (FEAT_I8MM). */
bool arm_has_i8mm(void);
