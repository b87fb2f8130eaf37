/* The cluster's models, as the API asks for them. */
#pragma once

#include "api/models.h"

struct daemon;
struct up_models;

struct up_models *up_models_new(struct daemon *daemon); /* NULL: no memory */
void up_models_free(struct up_models *models);          /* when the API's server is closed */
struct api_models up_models_of(struct up_models *models);
