/* A picture as its orientation shows it (exif.h). */
#pragma once

#include "model/picture.h"

#include <stdbool.h>

/* Replaces the pixels where they change. False: not enough memory; the picture is as it was. */
bool picture_turn(struct picture *picture, uint32_t orientation);
