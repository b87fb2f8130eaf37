/* A grammar that answers must follow, compiled once and shared by all who keep it: counted, and
 * freed with the last. The newest are remembered, so that requests with one schema share a grammar
 * and what was computed for it. Any thread. */
#pragma once

#include "grammar/grammar.h"

struct constraint;

/* Compiles the source, which is copied, or finds it. Errors are grammar_compile()'s. */
enum error_code constraint_open(const struct grammar_source *source, struct constraint **out,
                                struct error *err);
/* The same without compiling: for a source that came from elsewhere, until somebody here needs its
 * grammar. ERROR_NO_MEMORY. */
enum error_code constraint_note(const struct grammar_source *source, struct constraint **out,
                                struct error *err);
/* Compiles it unless that was done. A source that cannot be compiled fails again at once. */
enum error_code constraint_compile(struct constraint *constraint, struct error *err);
struct constraint *constraint_keep(struct constraint *constraint); /* NULL is fine, as below */
void constraint_release(struct constraint *constraint);
/* *at is released and becomes the other, kept. */
void constraint_replace(struct constraint **at, struct constraint *other);

const struct grammar *constraint_grammar(const struct constraint *constraint); /* compiled before */
const struct grammar_source *constraint_source(const struct constraint *constraint);
