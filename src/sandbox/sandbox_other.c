/* Systems other than Linux: nothing is given up yet, and that is said. */
#include "sandbox/sandbox.h"

struct sandbox_support sandbox_support(void)
{
    return (struct sandbox_support){0};
}

enum error_code sandbox_enter(const struct sandbox_rules *rules, struct error *err)
{
    (void)rules, (void)err;
    return ERROR_NONE;
}
