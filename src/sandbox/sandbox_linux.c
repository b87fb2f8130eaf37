#include "sandbox/sandbox_impl.h"

#include <assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct sandbox_support sandbox_support(void)
{
    return (struct sandbox_support){.landlock = landlock_version(), .seccomp = calls_supported()};
}

static enum error_code sandbox_drop_privileges(struct error *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    if (setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) || prctl(PR_SET_DUMPABLE, 0) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capset, &head, none))
        return error_set(err, ERROR_IO, "cannot give up privileges: %s", strerror(errno));
    return ERROR_NONE;
}

enum error_code sandbox_enter(const struct sandbox_rules *rules, struct error *err)
{
    assert(rules);
    const struct sandbox_support has = sandbox_support();
    if (rules->overflows)
        return error_set(err, ERROR_INVALID,
                         "the sandbox takes %d paths; the environment names more",
                         SANDBOX_RULES_MAX);
    enum error_code code = sandbox_drop_privileges(err);
    if (!code && has.landlock)
        code = landlock_enter(rules, has.landlock, err);
    if (!code && has.seccomp) /* last: it refuses what came before */
        code = calls_enter(err);
    return code;
}
