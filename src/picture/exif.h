/* The one thing of EXIF that matters here: how the camera was held. CIPA DC-008 4.6.4 (tag 0x0112);
 * a TIFF header and its first directory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* 1–8; 1 (as it is) also for anything that cannot be read. */
uint32_t exif_orientation(const uint8_t *bytes, size_t size);
