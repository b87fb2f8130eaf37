/* A trial of model files: before this process reads a file that may come from strangers, another
 * one reads its header and vocabulary, in the sandbox (sandbox/sandbox.h). A flaw of the parsers
 * that crashes or hangs then ends that process, not this one. What takes a parser over is not held
 * up by it: the same bytes are read here next.
 *
 * It is this program, started anew with a private first argument; its main() begins with
 * gguf_trial_main(). A file is tried once, for as long as its inode, size and times are the same.
 *
 * Threading: gguf_trial_require() once, before others call; gguf_trial_run() from any thread. */
#pragma once

#include "base/error.h"

#include <stdint.h>

/* From now on gguf_file_open() tries files first. `program` lives on; NULL: no longer. `limit_ms`:
 * for one trial; 0: LIMIT_TRIAL_MS. */
void gguf_trial_require(const char *program, uint32_t limit_ms);
/* Of an open file. ERROR_INVALID: the trial crashed or took too
 * long. That the file is none of a model is not said here but by who reads it next. Nothing is
 * tried before gguf_trial_require(). */
enum error_code gguf_trial_run(int descriptor, struct error *err);

/* Returns at once unless the arguments ask for a trial. */
void gguf_trial_main(int argc, char **argv);
#define GGUF_TRIAL_ARGUMENT "--try-a-model-file-for-the-node"
