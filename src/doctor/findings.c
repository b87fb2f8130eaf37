#include "doctor/findings.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* Texts quote drivers, peers and files; UTF-8 stays. */
static void findings_clean(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
    }
}

void findings_add(struct findings *findings, enum finding_level level, const char *area,
                  const char *mend, const char *format, ...)
{
    assert(findings->n <= FINDINGS_MAX && level <= FINDING_PROBLEM);
    if (findings->n == FINDINGS_MAX) {
        findings->overflows = true;
        return;
    }
    struct finding *finding = &findings->list[findings->n++];
    finding->level = level;
    snprintf(finding->area, sizeof finding->area, "%s", area);
    snprintf(finding->mend, sizeof finding->mend, "%s", mend ? mend : "");
    va_list args;
    va_start(args, format);
    vsnprintf(finding->text, sizeof finding->text, format, args);
    va_end(args);
    findings_clean(finding->text);
    findings_clean(finding->mend);
}

uint32_t findings_count(const struct findings *findings, enum finding_level level)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < findings->n; i++)
        n += findings->list[i].level == level;
    return n;
}

const char *finding_level_name(enum finding_level level)
{
    static const char *const names[] = {"fine", "hint", "problem"};
    assert(level <= FINDING_PROBLEM);
    return names[level];
}
