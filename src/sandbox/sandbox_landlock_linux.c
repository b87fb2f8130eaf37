/* Files and signals: landlock(7). glibc has no wrappers for its three system calls. */
#include "sandbox/sandbox_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    VERSION_REFER = 2,
    VERSION_TRUNCATE = 3,
    VERSION_NET = 4,
    VERSION_IOCTL = 5,
    VERSION_SCOPE = 6
};

/* Of a folder; a file has no more than the first line of each. */
#define FILE_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |  \
     LANDLOCK_ACCESS_FS_IOCTL_DEV)
static const uint64_t access_rights[] = {
    [SANDBOX_READ] = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    [SANDBOX_USE] = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                    LANDLOCK_ACCESS_FS_IOCTL_DEV | LANDLOCK_ACCESS_FS_READ_DIR,
    [SANDBOX_KEEP] =
        LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |
        LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
        LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REFER,
};

int landlock_version(void)
{
    const long version =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? (int)version : 0;
}

/* All that this version of it can refuse. */
static struct landlock_ruleset_attr landlock_refuses(int version)
{
    struct landlock_ruleset_attr all = {.handled_access_fs =
                                            (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    assert(version > 0);
    if (version >= VERSION_REFER)
        all.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
    if (version >= VERSION_TRUNCATE)
        all.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
    if (version >= VERSION_NET)
        all.handled_access_net = LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP;
    if (version >= VERSION_IOCTL)
        all.handled_access_fs |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
    if (version >= VERSION_SCOPE)
        all.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
    return all;
}

/* The kernel knows a rule's file by its inode. Those of /proc are made anew when memory is short,
 * unless somebody has the file open: so it stays open there, as a mere name (O_PATH). */
static bool landlock_pins(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0;
}

/* What is not there needs no rule. */
static enum error_code landlock_allow(int ruleset, const char *path, enum sandbox_access access,
                                      uint64_t handled, struct error *err)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access_rights[access] & handled};
    struct stat file;
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return ERROR_NONE;
    if (fstat(rule.parent_fd, &file) == 0 && !S_ISDIR(file.st_mode))
        rule.allowed_access &= FILE_RIGHTS;
    const long failed =
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    const int why = errno;
    if (failed || !landlock_pins(path))
        close(rule.parent_fd);
    return failed
               ? error_set(err, ERROR_IO, "Landlock refuses a rule for %s: %s", path, strerror(why))
               : ERROR_NONE;
}

static enum error_code landlock_allow_pattern(int ruleset, const char *pattern,
                                              enum sandbox_access access, uint64_t handled,
                                              struct error *err)
{
    glob_t found;
    enum error_code code = ERROR_NONE;
    if (glob(pattern, GLOB_NOSORT, NULL, &found))
        return ERROR_NONE;
    for (size_t i = 0; i < found.gl_pathc && !code; i++)
        code = landlock_allow(ruleset, found.gl_pathv[i], access, handled, err);
    globfree(&found);
    return code;
}

static enum error_code landlock_allow_rule(int ruleset, const struct sandbox_rule *rule,
                                           uint64_t handled, struct error *err)
{
    char path[PATH_MAX];
    if (rule->length >= sizeof path)
        return ERROR_NONE; /* no file has such a name */
    memcpy(path, rule->path, rule->length);
    path[rule->length] = '\0';
    return rule->is_pattern ? landlock_allow_pattern(ruleset, path, rule->access, handled, err)
                            : landlock_allow(ruleset, path, rule->access, handled, err);
}

enum error_code landlock_enter(const struct sandbox_rules *rules, int version, struct error *err)
{
    const struct landlock_ruleset_attr all = landlock_refuses(version);
    /* An older kernel wants a struct without the members that it does not know. */
    const size_t size = version >= VERSION_SCOPE ? sizeof all
                        : version >= VERSION_NET ? offsetof(struct landlock_ruleset_attr, scoped)
                                                 : sizeof all.handled_access_fs;
    const int ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    if (ruleset < 0)
        return error_set(err, ERROR_IO, "Landlock gives no set of rules: %s", strerror(errno));
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < rules->n && !code; i++)
        code = landlock_allow_rule(ruleset, &rules->list[i], all.handled_access_fs, err);
    if (!code && syscall(SYS_landlock_restrict_self, ruleset, 0))
        code = error_set(err, ERROR_IO, "Landlock cannot be entered: %s", strerror(errno));
    close(ruleset);
    return code;
}
