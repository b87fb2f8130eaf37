/* The stages of a model that runs in the cluster, as the node tells them. */
#pragma once

#include "cli/answer.h"

/* "tower cuda0 layers 0-9, laptop cpu layers 10-15": of the list; `with_states` adds what does not
 * work yet. */
void stages_text(struct answer *answer, yyjson_val *stages, bool with_states, struct buffer *out);
/* ", weights as q4_k", where they are not as stored. */
void stages_say_precision(struct answer *answer, yyjson_val *instance, struct buffer *out);
