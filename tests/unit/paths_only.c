/* cli/model_given.h for tests of single commands: MODEL is a path. Names are pulled in tests/hub.
 */
#include "cli/model_given.h"

#include <stdio.h>

enum error_code model_header_open(const char *word, struct model_header *out, struct error *err)
{
    *out = (struct model_header){0};
    return snprintf(out->path, PATH_MAX, "%s", word) < PATH_MAX
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the path is too long");
}

void model_header_close(struct model_header *header)
{
    *header = (struct model_header){0};
}
