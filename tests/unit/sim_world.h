/* What the tests of simulated devices share: a machine from a text, a small golden model, and
 * stages on it. */
#pragma once

#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

enum { VOCAB = 320 }; /* of the golden models */

/* Keys of a device that no CPU keeps up with: it is never slowed down. */
#define FAST "memory = 1GiB\ndecode = 100GB/s\nflops = 100TFLOP/s\nlaunch = 0s\ncopy = 1TB/s\n"

extern struct model *model; /* qwen3: two layers, 0.5 MB; between open and close */

struct model *open_model(const char *name);
/* As if its windows were the longest context: all layers' caches are equally large. */
struct model *open_model_unwindowed(const char *name);
int sim_world_open(void **state);
int sim_world_close(void **state);
enum error_code try_open(const char *ini, struct gpu **gpu, struct error *err);
struct gpu *open_sim(const char *ini);
struct stage_options options_of(uint32_t first_layer, uint32_t n_layers);
struct stage *open_stage(struct device *device, const struct model *what, uint32_t first_layer,
                         uint32_t n_layers);
/* Tokens by position, to slot 0; only the last one's output is wanted on the last stage. */
enum error_code feed(struct stage *stage, uint32_t first, uint32_t n, const float *in, float *out,
                     struct error *err);
void feed_well(struct stage *stage, uint32_t first, uint32_t n, const float *in, float *out);
double seconds_since(uint64_t start_ns);
void expect_words(const struct error *err, const char *words);
