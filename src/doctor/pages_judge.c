#include "doctor/pages_judge.h"

#include <stdio.h>
#include <string.h>

enum { PLACES_LEAST = 8 }; /* of 2 MiB: less says nothing of a model */

/* For a shell. A path that would need more than quotes, or is long, is left to the reader. */
static void pages_mend(const char *path, char *mend, size_t size)
{
    if (strchr(path, '\'') ||
        (size_t)snprintf(mend, size, "while nobody uses it: dd if='%s' iflag=nocache count=0",
                         path) >= size)
        snprintf(mend, size, "while nobody uses it: dd if=FILE iflag=nocache count=0");
}

void pages_judge(const struct model_pages *pages, struct findings *findings)
{
    struct finding sized;
    char mend[sizeof sized.mend];
    if (!pages->can_be_large || pages->n_places < PLACES_LEAST ||
        2 * pages->n_large >= pages->n_places)
        return;
    pages_mend(pages->path, mend, sizeof mend);
    findings_add(findings, FINDING_HINT, "models", mend,
                 "%s lies in memory in small pages (%u of %u places in large ones), which can make "
                 "it up to a fifth slower; dropped from memory, it is read anew in large ones",
                 pages->name, pages->n_large, pages->n_places);
}
