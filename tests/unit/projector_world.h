/* The vectors of tests/golden/pictures. Failures fail the test. */
#pragma once

#include "model/picture.h"

#include <stddef.h>
#include <yyjson.h>

/* The path of NAME with that ending. */
void vectors_path(char path[512], const char *name, const char *ending);
/* NAME.json: the caller's to free. */
yyjson_doc *vectors_open(const char *name);
uint32_t vectors_number(yyjson_val *object, const char *key);
/* A file of floats: the caller's to free(). */
float *vectors_floats(const char *name, const char *ending, size_t *n);
/* The picture as reference.py draws it; its pixels are the caller's to free(). */
struct picture vectors_draw(yyjson_val *about);
struct picture vectors_draw_sized(uint32_t width, uint32_t height, uint32_t seed);
