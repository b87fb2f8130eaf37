#include "request/constraint.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { CONSTRAINTS_KEPT = 16 };

struct constraint {
    atomic_uint n_users;
    struct grammar_source source;
    char *text;
    pthread_mutex_t lock; /* of the two below */
    struct grammar *grammar;
    struct error failed; /* why it cannot be compiled */
};

static pthread_mutex_t constraint_lock = PTHREAD_MUTEX_INITIALIZER;
static struct constraint *constraints_kept[CONSTRAINTS_KEPT]; /* the newest first; under the lock */

struct constraint *constraint_keep(struct constraint *constraint)
{
    if (constraint)
        atomic_fetch_add(&constraint->n_users, 1);
    return constraint;
}

static void constraint_free(struct constraint *constraint)
{
    grammar_free(constraint->grammar);
    pthread_mutex_destroy(&constraint->lock);
    mem_free(constraint->text);
    mem_free(constraint);
}

void constraint_release(struct constraint *constraint)
{
    if (constraint && atomic_fetch_sub(&constraint->n_users, 1) == 1)
        constraint_free(constraint);
}

void constraint_replace(struct constraint **at, struct constraint *other)
{
    struct constraint *before = *at;
    *at = constraint_keep(other);
    constraint_release(before);
}

const struct grammar *constraint_grammar(const struct constraint *constraint)
{
    assert(constraint->grammar);
    return constraint->grammar;
}

const struct grammar_source *constraint_source(const struct constraint *constraint)
{
    return &constraint->source;
}

static struct constraint *constraint_find(const struct grammar_source *source)
{
    struct constraint *found = NULL;
    pthread_mutex_lock(&constraint_lock);
    for (int i = 0; i < CONSTRAINTS_KEPT && constraints_kept[i] && !found; i++) {
        const struct grammar_source *kept = &constraints_kept[i]->source;
        if (kept->kind == source->kind && kept->annotate == source->annotate &&
            kept->size == source->size &&
            (!kept->size || memcmp(kept->text, source->text, kept->size) == 0))
            found = constraint_keep(constraints_kept[i]);
    }
    pthread_mutex_unlock(&constraint_lock);
    return found;
}

static void constraint_remember(struct constraint *constraint)
{
    constraint_keep(constraint);
    pthread_mutex_lock(&constraint_lock);
    struct constraint *oldest = constraints_kept[CONSTRAINTS_KEPT - 1];
    memmove(constraints_kept + 1, constraints_kept,
            (CONSTRAINTS_KEPT - 1) * sizeof *constraints_kept);
    constraints_kept[0] = constraint;
    pthread_mutex_unlock(&constraint_lock);
    constraint_release(oldest);
}

/* Not yet compiled, and not yet remembered. */
static enum error_code constraint_new(const struct grammar_source *source, struct constraint **out,
                                      struct error *err)
{
    struct constraint *constraint = mem_new(sizeof *constraint);
    char *text = mem_copy_text(source->text ? source->text : "", source->size);
    if (!constraint || !text) {
        mem_free(text);
        mem_free(constraint);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a grammar");
    }
    constraint->source = *source;
    constraint->source.text = constraint->text = text;
    pthread_mutex_init(&constraint->lock, NULL);
    atomic_init(&constraint->n_users, 1);
    *out = constraint;
    return ERROR_NONE;
}

enum error_code constraint_compile(struct constraint *constraint, struct error *err)
{
    pthread_mutex_lock(&constraint->lock);
    struct error failed = constraint->failed;
    if (!constraint->grammar && !failed.code) {
        grammar_compile(&constraint->source, &constraint->grammar, &failed);
        if (failed.code != ERROR_NO_MEMORY) /* that may pass */
            constraint->failed = failed;
    }
    pthread_mutex_unlock(&constraint->lock);
    if (failed.code && err)
        *err = failed;
    return failed.code;
}

enum error_code constraint_open(const struct grammar_source *source, struct constraint **out,
                                struct error *err)
{
    struct constraint *constraint = constraint_find(source);
    const bool is_new = !constraint;
    enum error_code code = is_new ? constraint_new(source, &constraint, err) : ERROR_NONE;
    if (code)
        return code;
    code = constraint_compile(constraint, err);
    if (code) {
        constraint_release(constraint);
        return code;
    }
    if (is_new)
        constraint_remember(constraint);
    *out = constraint;
    return ERROR_NONE;
}

enum error_code constraint_note(const struct grammar_source *source, struct constraint **out,
                                struct error *err)
{
    struct constraint *constraint = constraint_find(source);
    if (!constraint) {
        const enum error_code code = constraint_new(source, &constraint, err);
        if (code)
            return code;
        constraint_remember(constraint);
    }
    *out = constraint;
    return ERROR_NONE;
}
