/* What was found out about a machine: what is in order, what is not, and how each is mended. A
 * zeroed list is empty. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum finding_level {
    FINDING_FINE,
    FINDING_HINT,    /* works, and could be better; or could not be looked at */
    FINDING_PROBLEM, /* something does not work, or will stop */
};

enum { FINDINGS_MAX = 160 };

struct finding {
    char area[16]; /* "clock" */
    enum finding_level level;
    char text[280];
    char mend[200]; /* a command, or what to do; "" where there is nothing to do */
};

struct findings {
    struct finding list[FINDINGS_MAX];
    uint32_t n;
    bool overflows; /* there were more */
};

/* `mend` may be NULL. Whatever the text quotes, it becomes printable. */
void findings_add(struct findings *findings, enum finding_level level, const char *area,
                  const char *mend, const char *format, ...) __attribute__((format(printf, 5, 6)));

uint32_t findings_count(const struct findings *findings, enum finding_level level);
const char *finding_level_name(enum finding_level level); /* "fine", "hint", "problem" */
