/* System calls: seccomp(2) by libseccomp.
 *
 * A list of what is refused, not of what is allowed: GPU drivers are closed programs that change
 * with each release, and a call that an allow-list forgot would be a device that fails on one
 * machine in a hundred. What is refused ends with EPERM, as a container's would, so that a library
 * that merely tries goes on without. A call of another architecture (32 bits, x32) has other
 * numbers: libseccomp kills for it. */
#include "sandbox/sandbox_impl.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *const refused_calls[] = {
    /* programs and processes; threads are below */
    "execve",
    "execveat",
    "fork",
    "vfork",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "pidfd_open",
    "pidfd_getfd",
    "pidfd_send_signal",
    "tkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "migrate_pages",
    "move_pages",
    "setpriority",
    "ioprio_set",
    "personality",
    /* the network, and sockets of this machine: agents, D-Bus, a container's daemon */
    "socket",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    "socketcall",
    /* memory that other processes share by a number or a name */
    "shmget",
    "shmat",
    "shmctl",
    "shmdt",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "ipc",
    "mq_open",
    "mq_unlink",
    /* what Landlock leaves: it knows no modes, owners, attributes */
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "inotify_init",
    "inotify_init1",
    "fanotify_init",
    "fanotify_mark",
    "open_by_handle_at",
    "name_to_handle_at",
    /* views of the machine */
    "unshare",
    "setns",
    "chroot",
    "pivot_root",
    "mount",
    "umount",
    "umount2",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fsmount",
    "fsconfig",
    "fspick",
    "mount_setattr",
    "swapon",
    "swapoff",
    "quotactl",
    "quotactl_fd",
    "acct",
    "sethostname",
    "setdomainname",
    /* the kernel, and its larger holes of the past */
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "syslog",
    "iopl",
    "ioperm",
    "lookup_dcookie",
    "vhangup",
    "uselib",
    "modify_ldt",
    "vm86",
    "vm86old",
    "settimeofday",
    "clock_settime",
    "clock_settime64",
    "clock_adjtime",
    "clock_adjtime64",
    "adjtimex",
    "stime",
};

static int calls_refuse(scmp_filter_ctx filter, const char *name, unsigned n_conditions,
                        const struct scmp_arg_cmp *conditions)
{
    const int call = seccomp_syscall_resolve_name(name);
    if (call == __NR_SCMP_ERROR)
        return 0; /* newer than the library; this kernel may not have it either */
    return seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), call, n_conditions, conditions);
}

static int calls_refuse_all(scmp_filter_ctx filter)
{
    int failure = 0;
    for (size_t i = 0; !failure && i < sizeof refused_calls / sizeof *refused_calls; i++)
        failure = calls_refuse(filter, refused_calls[i], 0, NULL);
    return failure;
}

/* Calls that are refused with some arguments. */
static int calls_refuse_some(scmp_filter_ctx filter)
{
    const uint64_t low = UINT32_MAX, own = (uint64_t)(uint32_t)getpid();
    /* Threads are made; processes and namespaces are not. */
    int failure = calls_refuse(filter, "clone", 1,
                               &SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, (scmp_datum_t)0));
    /* Its flags are in memory, which a filter cannot see. glibc falls back to clone(). */
    if (!failure)
        failure = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS),
                                   seccomp_syscall_resolve_name("clone3"), 0);
    /* Signals to itself: abort() and raise(). */
    if (!failure)
        failure = calls_refuse(filter, "kill", 1, &SCMP_A0_32(SCMP_CMP_NE, own));
    if (!failure)
        failure = calls_refuse(filter, "tgkill", 1, &SCMP_A0_32(SCMP_CMP_NE, own));
    /* Other processes' limits; 0 is itself. */
    if (!failure)
        failure = calls_refuse(filter, "prlimit64", 1, &SCMP_A0_32(SCMP_CMP_NE, 0));
    /* To outlive its node, or to be looked into. */
    if (!failure)
        failure = calls_refuse(filter, "prctl", 1, &SCMP_A0_32(SCMP_CMP_EQ, PR_SET_PDEATHSIG));
    if (!failure)
        failure = calls_refuse(filter, "prctl", 1, &SCMP_A0_32(SCMP_CMP_EQ, PR_SET_DUMPABLE));
    /* To type into the terminal that shows what it says: its upper half is not looked at by the
     * kernel. */
    if (!failure)
        failure = calls_refuse(filter, "ioctl", 1,
                               &SCMP_A1(SCMP_CMP_MASKED_EQ, low, (scmp_datum_t)TIOCSTI));
    if (!failure)
        failure = calls_refuse(filter, "ioctl", 1,
                               &SCMP_A1(SCMP_CMP_MASKED_EQ, low, (scmp_datum_t)TIOCLINUX));
    return failure;
}

bool calls_supported(void)
{
    return seccomp_api_get() > 0 && prctl(PR_GET_SECCOMP) >= 0;
}

enum error_code calls_enter(struct error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the sandbox");
    int failure = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (!failure)
        failure = calls_refuse_all(filter);
    if (!failure)
        failure = calls_refuse_some(filter);
    if (!failure)
        failure = seccomp_load(filter);
    seccomp_release(filter);
    return failure ? error_set(err, ERROR_IO, "seccomp cannot be entered: %s", strerror(-failure))
                   : ERROR_NONE;
}
