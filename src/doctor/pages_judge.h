/* What follows from how a model's file lies in memory (base/large_pages.h). Pure. */
#pragma once

#include "doctor/findings.h"

struct model_pages {
    const char *name, *path;    /* the path: of its first file */
    uint32_t n_places, n_large; /* of that file, as large_pages_look() counts */
    bool can_be_large;          /* large_pages_possible() in its folder */
};

/* A hint where most of what is in memory lies in small pages and need not; else nothing. */
void pages_judge(const struct model_pages *pages, struct findings *findings);
