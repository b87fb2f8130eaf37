/* Systems other than Linux: nothing is given up yet, and that is said. */
#include "sandbox/sandbox.h"

struct sandbox_support sandbox_support(void)
{
    return (struct sandbox_support){0};
}

void sandbox_rules_make(const struct sandbox_need *need, struct sandbox_rules *out)
{
    (void)need;
    *out = (struct sandbox_rules){0};
}

enum error_code sandbox_enter(const struct sandbox_rules *rules, struct error *err)
{
    (void)rules, (void)err;
    return ERROR_NONE;
}
