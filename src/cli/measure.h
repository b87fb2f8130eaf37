/* A model and the text that it is measured on: what `perplexity`, `compare` and `convert` share. */
#pragma once

#include "base/buffer.h"
#include "cli/session.h"
#include "precision/score.h"

#include <yyjson.h>

struct measure_flags {
    struct session_flags session;
    const char *text; /* a file; NULL: the bundled text */
    bool json;
};

/* Rows for a command whose flags begin with struct measure_flags. */
extern const struct option_row measure_options[];
enum { MEASURE_OPTIONS = 2 };

/* The file, or the bundled text. ERROR_INVALID: more than LIMIT_TOKENIZE_BYTES. */
enum error_code measure_read_text(const char *path, struct buffer *out, struct error *err);

struct measured_model {
    struct session session;
    struct token_list tokens; /* of the text */
    struct score_text text;   /* over them */
};

/* Loads the model with one slot, and cuts the text by its vocabulary into windows of the flags'
 * context; where that is 0, 512 tokens, or what the model or the text has. */
enum error_code measure_open(const char *path, const struct measure_flags *flags,
                             const struct buffer *text, struct measured_model *out,
                             struct error *err);
void measure_close(struct measured_model *measured); /* a zeroed one is fine */

/* ERROR_INVALID: their vocabularies make other tokens of the text, or they have other windows. */
enum error_code measure_check_pair(const struct measured_model *a, const struct measured_model *b,
                                   struct error *err);
/* All windows of `b` against those of `a`. */
enum error_code measure_compare(const struct measured_model *a, const struct measured_model *b,
                                struct divergence_summary *out, struct error *err);

/* ---- what is printed ---- */

/* "5.31 (4.98 to 5.66)", with so many digits behind the point. */
void estimate_print(const char *label, struct estimate estimate, int digits, const char *end);
/* {"value": …, "low": …, "high": …}; null: not known. */
void estimate_json(yyjson_mut_doc *doc, yyjson_mut_val *root, const char *name,
                   struct estimate estimate);
void measure_json(yyjson_mut_doc *doc, yyjson_mut_val *root,
                  const struct divergence_summary *summary);
void measure_print(const struct divergence_summary *summary);
/* Prints the document on a line and frees it; false: no memory. */
bool measure_put_json(yyjson_mut_doc *doc);
