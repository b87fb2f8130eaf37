/* The inside of model.c and model_precision.c. */
#pragma once

#include "model/model.h"

#include <pthread.h>

struct model_versions {
    pthread_mutex_t lock;
    struct model *first; /* of other precisions; under the lock, as what follows from it */
};

struct model {
    struct gguf_file *file;
    const struct model *origin; /* of a copy: whose file and tensors these are */
    const struct architecture *architecture;
    struct hyperparameters hyperparameters;
    char name[128];
    const struct gguf_tensor *outside[TENSOR_ROLE_COUNT];   /* roles outside the layers */
    const struct gguf_tensor *(*layers)[TENSOR_ROLE_COUNT]; /* [n_layers] */
    struct model_versions *versions;                        /* NULL: it is one itself */

    /* of a version at another precision */
    const struct model *original;
    struct gguf_tensor *tensors; /* all of the file, as computed */
    int precision;
    struct model *next;
};

enum error_code model_versions_open(struct model *model, struct error *err);
void model_versions_close(struct model *model);
