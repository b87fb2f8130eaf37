/* The sandbox: its rules, its environment, and what a hostile device's process can do in it.
 *
 * The process is a real one: children.h starts this program as it starts medley, and what enters
 * the sandbox is child_main(). In the place of the device's driver (gpu_open() is wrapped) it then
 * tries everything in `attacks` and writes down how each ended. The same is tried without a
 * sandbox: an attack that fails there, too, says nothing and is reported as not run. */
#include "child_world.h"
#include "gpu/gpu.h"
#include "pipeline/children_impl.h"
#include "sandbox/sandbox_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

/* ---- rules ------------------------------------------------------------------------------- */

static const struct sandbox_rule *rule_for(const struct sandbox_rules *rules, const char *path)
{
    for (uint32_t i = 0; i < rules->n; i++) {
        if (rules->list[i].length == strlen(path) &&
            strncmp(rules->list[i].path, path, rules->list[i].length) == 0)
            return &rules->list[i];
    }
    return NULL;
}

static struct sandbox_rules rules_of(const char *backend)
{
    struct sandbox_rules rules;
    const struct sandbox_need need = {.work = SANDBOX_DEVICE, .backend = backend};
    sandbox_rules_make(&need, &rules);
    assert_false(rules.overflows);
    return rules;
}

static void a_backend_gets_its_own_device_files(void **state)
{
    (void)state;
    const struct sandbox_rules cpu = rules_of("cpu"), cuda = rules_of("cuda"),
                               hip = rules_of("hip"), any = rules_of(NULL),
                               odd = rules_of("quantum");
    for (uint32_t i = 0; i < cpu.n; i++) /* its device files are those of every process */
        assert_true(cpu.list[i].access == SANDBOX_READ ||
                    strcmp(cpu.list[i].path, "/dev/null") == 0 ||
                    strcmp(cpu.list[i].path, "/dev/zero") == 0);
    assert_non_null(rule_for(&cuda, "/dev/nvidia*"));
    assert_null(rule_for(&cuda, "/dev/kfd"));
    assert_null(rule_for(&cuda, "/dev/dri"));
    assert_non_null(rule_for(&hip, "/dev/kfd"));
    assert_null(rule_for(&hip, "/dev/nvidia*"));
    assert_int_equal(rule_for(&any, "/dev/nvidia*")->access, SANDBOX_USE);
    assert_non_null(rule_for(&any, "/dev/kfd"));
    assert_int_equal(any.n, odd.n);
}

static void no_rule_is_wide(void **state)
{
    (void)state;
    const struct sandbox_rules all = rules_of(NULL);
    static const char *const wide[] = {"/",        "/etc", "/home", "/root", "/proc", "/dev",
                                       "/dev/shm", "/tmp", "/run",  "/var",  "/usr",  "/sys"};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        assert_null(rule_for(&all, wide[i]));
    for (uint32_t i = 0; i < all.n; i++)
        assert_int_not_equal(all.list[i].access, SANDBOX_KEEP); /* no folder was given */
}

static void rules_follow_the_environment(void **state)
{
    (void)state;
    static char *const environment[] = {"LD_LIBRARY_PATH=/a/lib::/b/lib:", "HOME=/home/alice",
                                        "VK_DRIVER_FILES=/icd/one.json:/two.json:bare", NULL};
    static const char *const files[] = {"/models/a*.gguf", NULL, ""};
    struct sandbox_rules rules;
    const struct sandbox_need need = {.work = SANDBOX_DEVICE,
                                      .backend = "cpu",
                                      .folder = "/state/drivers",
                                      .files = files,
                                      .n_files = 3,
                                      .environment = environment};
    sandbox_rules_make(&need, &rules);
    assert_non_null(rule_for(&rules, "/a/lib"));
    assert_non_null(rule_for(&rules, "/b/lib"));
    assert_non_null(rule_for(&rules, "/icd/"));
    assert_null(rule_for(&rules, "bare"));
    assert_null(rule_for(&rules, "/home/alice"));
    assert_null(rule_for(&rules, ""));
    assert_false(rule_for(&rules, "/models/a*.gguf")->is_pattern); /* a file may be called so */
    assert_int_equal(rule_for(&rules, "/state/drivers")->access, SANDBOX_KEEP);
    assert_non_null(rule_for(&rules, "/")); /* the folder of /two.json: who starts a node may */
}

static void too_many_paths_are_refused(void **state)
{
    (void)state;
    static char list[4 * SANDBOX_RULES_MAX + 64] = "LD_LIBRARY_PATH=";
    struct error err = {0};
    struct sandbox_rules rules;
    for (int i = 0; i < SANDBOX_RULES_MAX; i++)
        strcat(list, "/a:");
    char *const environment[] = {list, NULL};
    const struct sandbox_need need = {.work = SANDBOX_DEVICE, .environment = environment};
    sandbox_rules_make(&need, &rules);
    assert_true(rules.overflows);
    assert_int_equal(rules.n, SANDBOX_RULES_MAX);
    assert_int_equal(sandbox_enter(&rules, &err), ERROR_INVALID); /* and nothing was entered */
    assert_int_equal(prctl(PR_GET_DUMPABLE), 1);
}

static void work_on_files_gets_nothing_but_them(void **state)
{
    (void)state;
    struct sandbox_rules rules;
    const char *const file = "/proc/self/exe";
    const struct sandbox_need need = {
        .work = SANDBOX_FILES, .files = &file, .n_files = 1, .environment = environ};
    sandbox_rules_make(&need, &rules);
    assert_int_equal(rules.n, 1);
}

/* ---- the environment ---------------------------------------------------------------------- */

static bool environment_has(const struct sandbox_environment *environment, const char *variable)
{
    for (uint32_t i = 0; i < environment->n; i++) {
        if (strcmp(environment->variables[i], variable) == 0)
            return true;
    }
    return false;
}

static void an_environment_is_clean(void **state)
{
    (void)state;
    static struct sandbox_environment clean;
    static char *const from[] = {"AWS_SECRET_ACCESS_KEY=x",
                                 "SSH_AUTH_SOCK=/run/agent",
                                 "PATH=/bin",
                                 "HOME=/home/alice",
                                 "XDG_CACHE_HOME=/c",
                                 "MESA_SHADER_CACHE_DIR=/shared",
                                 "DBUS_SESSION_BUS_ADDRESS=unix:",
                                 "LD_PRELOAD=/x.so",
                                 "MEDLEY_STATE_DIR=/state",
                                 "MEDLEY_LOG=debug",
                                 "MEDLEY_LOGIN=x",
                                 "VK_ICD_FILENAMES=/icd.json",
                                 "GGML_VK_VISIBLE_DEVICES=0",
                                 "LC_ALL=C",
                                 "VK",
                                 "=",
                                 NULL};
    sandbox_environment_make(from, "/state/drivers", &clean);
    assert_true(environment_has(&clean, "MEDLEY_LOG=debug"));
    assert_true(environment_has(&clean, "VK_ICD_FILENAMES=/icd.json"));
    assert_true(environment_has(&clean, "GGML_VK_VISIBLE_DEVICES=0"));
    assert_true(environment_has(&clean, "LC_ALL=C"));
    assert_true(environment_has(&clean, "HOME=/state/drivers"));
    assert_true(environment_has(&clean, "MESA_SHADER_CACHE_DIR=/state/drivers/mesa"));
    assert_int_equal(clean.n, 4 + SANDBOX_FOLDERS);
    assert_null(clean.variables[clean.n]);
    sandbox_environment_make(from, NULL, &clean);
    assert_int_equal(clean.n, 4); /* no folder: drivers keep nothing */
}

static void an_environment_has_a_limit(void **state)
{
    (void)state;
    static struct sandbox_environment clean;
    static char *from[2 * SANDBOX_VARIABLES_MAX + 1];
    for (int i = 0; i < 2 * SANDBOX_VARIABLES_MAX; i++)
        from[i] = "VK_X=1";
    sandbox_environment_make(from, "/f", &clean);
    assert_int_equal(clean.n, SANDBOX_VARIABLES_MAX);
    assert_null(clean.variables[clean.n]);
}

/* ---- what a kernel lacks ------------------------------------------------------------------- */

static void what_lacks_is_said(void **state)
{
    (void)state;
    char text[512];
    assert_false(sandbox_lacks((struct sandbox_support){5, true}, text, sizeof text));
    assert_string_equal(text, "");
    assert_true(sandbox_lacks((struct sandbox_support){0, true}, text, sizeof text));
    assert_non_null(strstr(text, "any file"));
    assert_null(strstr(text, "truncate"));
    assert_null(strstr(text, "network"));
    assert_true(sandbox_lacks((struct sandbox_support){1, true}, text, sizeof text));
    assert_null(strstr(text, "any file"));
    assert_non_null(strstr(text, "truncate"));
    assert_true(sandbox_lacks((struct sandbox_support){3, false}, text, sizeof text));
    assert_non_null(strstr(text, "ioctl"));
    assert_non_null(strstr(text, "network"));
    assert_true(sandbox_lacks((struct sandbox_support){0, false}, text, 8));
    assert_int_equal(strlen(text), 7);
}

/* ---- a hostile process: what it tries ------------------------------------------------------ */

/* Where its targets are; the test writes it into the only folder that the process may read. */
struct targets {
    char state[64], key[128], outside[128], link[128], renamed[128], kept[128], unix_socket[108],
        abstract[64], model[1024];
    uint16_t port;
    pid_t parent, other;
    int parent_fd;
};
static struct targets targets;

static int code_of(long result)
{
    return result < 0 ? errno : 0;
}

static int try_open(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    const int code = code_of(fd);
    if (fd >= 0)
        close(fd);
    return code;
}

static int parent_file(const char *name, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "/proc/%ld/%s", (long)targets.parent, name);
    return try_open(path, flags);
}

static int read_key(void)
{
    return try_open(targets.key, O_RDONLY);
}
static int write_key(void)
{
    return try_open(targets.key, O_WRONLY);
}
static int read_model(void)
{
    return try_open(targets.model, O_RDONLY);
}
static int read_passwords(void)
{
    return try_open("/etc/passwd", O_RDONLY);
}
static int list_state(void)
{
    return try_open(targets.state, O_RDONLY | O_DIRECTORY);
}
static int make_file(void)
{
    return try_open(targets.outside, O_CREAT | O_WRONLY);
}
static int make_shared(void)
{
    return try_open("/dev/shm/medley-hostile", O_CREAT | O_RDWR);
}
static int truncate_key(void)
{
    return code_of(truncate(targets.key, 64));
}
static int truncate_key_by_reading(void)
{
    return try_open(targets.key, O_RDONLY | O_TRUNC);
}
static int remove_key(void)
{
    const int code = code_of(unlink(targets.key));
    return code ? code : (close(open(targets.key, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
}
static int rename_key(void)
{
    const int code = code_of(rename(targets.key, targets.renamed));
    return code ? code : code_of(rename(targets.renamed, targets.key));
}
/* Into the folder where everything may be read. */
static int link_key(void)
{
    const int code = code_of(link(targets.key, targets.kept));
    return code ? code : code_of(unlink(targets.kept));
}
static int open_key_to_all(void)
{
    return code_of(chmod(targets.key, 0644));
}
static int own_key(void)
{
    return code_of(chown(targets.key, geteuid(), getegid()));
}
static int make_link(void)
{
    const int code = code_of(symlink(targets.key, targets.link));
    return code ? code : code_of(unlink(targets.link));
}

static int parent_memory(void)
{
    return parent_file("mem", O_RDWR);
}
static int parent_environment(void)
{
    return parent_file("environ", O_RDONLY);
}
static int parent_root(void)
{
    char name[200];
    snprintf(name, sizeof name, "root%s", targets.key);
    return parent_file(name, O_RDONLY);
}
static int parent_descriptor(void)
{
    char name[32];
    snprintf(name, sizeof name, "fd/%d", targets.parent_fd);
    return parent_file(name, O_RDONLY);
}
/* Of another process of the same user. */
static int trace_other(void)
{
    return code_of(ptrace(PTRACE_SEIZE, targets.other, NULL, NULL));
}
static int read_other(void)
{
    long here;
    struct iovec local = {&here, sizeof here}, remote = {&targets, sizeof here};
    return code_of(process_vm_readv(targets.other, &local, 1, &remote, 1, 0));
}
static int signal_other(void)
{
    return code_of(kill(targets.other, SIGCONT));
}
static int signal_thread(void)
{
    return code_of(syscall(SYS_tgkill, targets.other, targets.other, SIGCONT));
}
static int signal_by_descriptor(void)
{
    const int fd = (int)syscall(SYS_pidfd_open, targets.other, 0);
    int code = code_of(fd);
    if (!code)
        code = code_of(syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0));
    if (fd >= 0)
        close(fd);
    return code;
}
static int limit_other(void)
{
    struct rlimit old;
    return code_of(prlimit(targets.other, RLIMIT_NOFILE, NULL, &old));
}
static int slow_other(void)
{
    return code_of(setpriority(PRIO_PROCESS, (id_t)targets.other, 0));
}

static int try_connect(int domain, int type, const void *address, socklen_t size)
{
    const int fd = socket(domain, type | SOCK_CLOEXEC, 0);
    const int code = fd < 0 ? errno : code_of(connect(fd, address, size));
    if (fd >= 0)
        close(fd);
    return code;
}
static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}
static int connect_tcp(void)
{
    const struct sockaddr_in to = loopback(targets.port);
    return try_connect(AF_INET, SOCK_STREAM, &to, sizeof to);
}
static int connect_udp(void)
{
    const struct sockaddr_in to = loopback(9);
    return try_connect(AF_INET, SOCK_DGRAM, &to, sizeof to);
}
static int bind_tcp(void)
{
    const struct sockaddr_in at = loopback(0);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int code = fd < 0 ? errno : code_of(bind(fd, (const void *)&at, sizeof at));
    if (fd >= 0)
        close(fd);
    return code;
}
static int connect_unix(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", targets.unix_socket);
    return try_connect(AF_UNIX, SOCK_STREAM, &to, sizeof to);
}
static int connect_abstract(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t length = strlen(targets.abstract);
    memcpy(to.sun_path + 1, targets.abstract, length);
    return try_connect(AF_UNIX, SOCK_STREAM, &to,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
}

static int run_process(bool executes)
{
    const pid_t pid = fork();
    int status = 0;
    if (pid == 0 && executes)
        execl("/bin/true", "true", (char *)NULL);
    if (pid == 0)
        _exit(executes ? errno : 0);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return errno;
    return WEXITSTATUS(status);
}
static int make_process(void)
{
    return run_process(false);
}
static int run_program(void)
{
    return run_process(true);
}
static int make_namespace(void)
{
    const pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return code_of(pid);
}
static int unshare_files(void)
{
    return code_of(unshare(CLONE_FS));
}
static int mount_over(void)
{
    return code_of(mount("none", "/nowhere", "tmpfs", 0, NULL));
}
static int change_root(void)
{
    return code_of(chroot("/nowhere"));
}
static int use_keys(void)
{
    return code_of(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1));
}
static int load_bpf(void)
{
    return code_of(syscall(SYS_bpf, 999, NULL, 0));
}
static int measure_kernel(void)
{
    return code_of(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
}
static int make_ring(void)
{
    return code_of(syscall(SYS_io_uring_setup, 0, NULL));
}
static int handle_faults(void)
{
    return code_of(syscall(SYS_userfaultfd, 0x7fffffff));
}
static int share_memory(void)
{
    const int id = shmget(IPC_PRIVATE, 4096, 0600);
    const int code = code_of(id);
    if (!code)
        shmctl(id, IPC_RMID, NULL);
    return code;
}
static int type_into_terminal(void)
{
    return code_of(ioctl(2, TIOCSTI, "x"));
}
static int type_with_a_high_half(void)
{
    return code_of(syscall(SYS_ioctl, 2, (1UL << 32) | TIOCSTI, "x"));
}
static int outlive_parent(void)
{
    return code_of(prctl(PR_SET_PDEATHSIG, SIGKILL));
}

enum { BY_FILES = 1, BY_CALLS = 2 };

/* Which part refuses it by itself: Landlock (BY_FILES), from the version `since` on, or seccomp
 * (BY_CALLS). */
static const struct attack {
    const char *name;
    int (*work)(void); /* 0, or errno's value */
    int by, since;
} attacks[] = {
    {"read the node's key", read_key, BY_FILES, 1},
    {"write the node's key", write_key, BY_FILES, 1},
    {"list the state folder", list_state, BY_FILES, 1},
    {"read a model that was not handed over", read_model, BY_FILES, 1},
    {"read /etc/passwd", read_passwords, BY_FILES, 1},
    {"make a file", make_file, BY_FILES, 1},
    {"make shared memory by name", make_shared, BY_FILES, 1},
    {"truncate the key", truncate_key, BY_FILES, 3},
    {"truncate the key by opening it", truncate_key_by_reading, BY_FILES, 1},
    {"remove the key", remove_key, BY_FILES, 1},
    {"rename the key", rename_key, BY_FILES, 1},
    {"link the key to where it may read", link_key, BY_FILES, 1},
    {"make a symbolic link", make_link, BY_FILES, 1},
    {"open the key to other users", open_key_to_all, BY_CALLS, 0},
    {"change the key's owner", own_key, BY_CALLS, 0},
    {"open its parent's memory", parent_memory, BY_FILES, 1},
    {"read its parent's environment", parent_environment, BY_FILES, 1},
    {"read the key through its parent's root", parent_root, BY_FILES, 1},
    {"open its parent's descriptor", parent_descriptor, BY_FILES, 1},
    {"trace another process", trace_other, BY_FILES | BY_CALLS, 1},
    {"read another process's memory", read_other, BY_FILES | BY_CALLS, 1},
    {"signal another process", signal_other, BY_FILES | BY_CALLS, 6},
    {"signal another process's thread", signal_thread, BY_FILES | BY_CALLS, 6},
    {"signal another process by a descriptor", signal_by_descriptor, BY_FILES | BY_CALLS, 6},
    {"ask for another process's limits", limit_other, BY_CALLS, 0},
    {"change another process's priority", slow_other, BY_CALLS, 0},
    {"connect by TCP", connect_tcp, BY_FILES | BY_CALLS, 4},
    {"send by UDP", connect_udp, BY_CALLS, 0},
    {"listen by TCP", bind_tcp, BY_FILES | BY_CALLS, 4},
    {"connect to a socket in a folder", connect_unix, BY_CALLS, 0},
    {"connect to an abstract socket", connect_abstract, BY_FILES | BY_CALLS, 6},
    {"make a process", make_process, BY_CALLS, 0},
    {"run a program", run_program, BY_FILES | BY_CALLS, 1},
    {"make a user namespace", make_namespace, BY_CALLS, 0},
    {"leave a namespace", unshare_files, BY_CALLS, 0},
    {"mount", mount_over, BY_CALLS, 0},
    {"change the root", change_root, BY_CALLS, 0},
    {"use the kernel's keys", use_keys, BY_CALLS, 0},
    {"load BPF", load_bpf, BY_CALLS, 0},
    {"open a performance event", measure_kernel, BY_CALLS, 0},
    {"make an io_uring", make_ring, BY_CALLS, 0},
    {"handle page faults", handle_faults, BY_CALLS, 0},
    {"share memory by number", share_memory, BY_CALLS, 0},
    {"type into the terminal", type_into_terminal, BY_CALLS, 0},
    {"type with the number's upper half set", type_with_a_high_half, BY_CALLS, 0},
    {"outlive its node", outlive_parent, BY_CALLS, 0},
};
enum { N_ATTACKS = sizeof attacks / sizeof *attacks };

/* ---- in the hostile process ------------------------------------------------------------------ */

struct report {
    int codes[N_ATTACKS];
    int n_descriptors; /* beyond the socket to its node */
    int n_secrets;     /* variables that the test's own environment has and it must not */
    bool may_dump;     /* a core file, or its memory to other processes */
    bool is_privileged;
    bool whole;
};

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 4; fd < 256; fd++) { /* 3: the node. What names files of /proc opens nothing */
        const int flags = fcntl(fd, F_GETFL);
        n += flags >= 0 && !(flags & O_PATH);
    }
    return n;
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    return syscall(SYS_capget, &head, data) || data[0].effective || data[0].permitted ||
           data[1].effective || data[1].permitted;
}

static void take_report(struct report *report)
{
    report->n_descriptors = count_descriptors();
    report->n_secrets = getenv("MEDLEY_TEST_SECRET") != NULL;
    struct rlimit core = {1, 1};
    getrlimit(RLIMIT_CORE, &core);
    report->may_dump = core.rlim_max || prctl(PR_GET_DUMPABLE);
    report->is_privileged = !prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) || has_capabilities();
    for (int i = 0; i < N_ATTACKS; i++)
        report->codes[i] = attacks[i].work();
    report->whole = true;
}

static const char *in_folder(const char *name)
{
    static char path[256];
    const char *folder = getenv("HOME");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "/nowhere", name);
    return path;
}

static bool transfer_file(const char *path, bool writes, void *bytes, size_t size)
{
    FILE *file = fopen(path, writes ? "we" : "re");
    const bool ok =
        file && (writes ? fwrite(bytes, 1, size, file) : fread(bytes, 1, size, file)) == size;
    return file ? (fclose(file) == 0) & ok : false;
}

static enum error_code be_hostile(const char *mode, struct error *err)
{
    static struct report report;
    struct sandbox_rules rules;
    const struct sandbox_need need = {
        .work = SANDBOX_DEVICE, .backend = "cpu", .folder = getenv("HOME")};
    enum error_code code = ERROR_NONE;
    sandbox_rules_make(&need, &rules);
    if (!transfer_file(in_folder("targets"), false, &targets, sizeof targets))
        return error_set(err, ERROR_DEVICE, "no targets: %s", strerror(errno));
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (strcmp(mode, "hostile:files") == 0)
        code = landlock_enter(&rules, landlock_version(), err);
    else if (strcmp(mode, "hostile:calls") == 0)
        code = calls_enter(err);
    if (code)
        return code;
    take_report(&report);
    if (access(in_folder(mode), F_OK) != 0) /* it is started again and again */
        transfer_file(in_folder(mode), true, &report, sizeof report);
    return error_set(err, ERROR_DEVICE, "tried everything");
}

enum error_code __real_gpu_open(const struct gpu_options *options, struct gpu **out,
                                struct error *err);
enum error_code __wrap_gpu_open(const struct gpu_options *options, struct gpu **out,
                                struct error *err);
enum error_code __wrap_gpu_open(const struct gpu_options *options, struct gpu **out,
                                struct error *err)
{
    if (options && options->only && strncmp(options->only, "hostile:", 8) == 0)
        return be_hostile(options->only, err);
    return __real_gpu_open(options, out, err);
}

/* ---- the test around it ----------------------------------------------------------------- */

static int listener_tcp, listener_unix, listener_abstract;

static int listen_at(int domain, const void *address, socklen_t size)
{
    const int fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, address, size), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

static void open_listeners(void)
{
    struct sockaddr_in tcp = loopback(0);
    struct sockaddr_un named = {.sun_family = AF_UNIX}, abstract = {.sun_family = AF_UNIX};
    socklen_t size = sizeof tcp;
    listener_tcp = listen_at(AF_INET, &tcp, sizeof tcp);
    assert_int_equal(getsockname(listener_tcp, (void *)&tcp, &size), 0);
    targets.port = ntohs(tcp.sin_port);
    snprintf(named.sun_path, sizeof named.sun_path, "%s", targets.unix_socket);
    listener_unix = listen_at(AF_UNIX, &named, sizeof named);
    memcpy(abstract.sun_path + 1, targets.abstract, strlen(targets.abstract));
    listener_abstract = listen_at(
        AF_UNIX, &abstract,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(targets.abstract)));
}

static pid_t start_other(void)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    prctl(PR_SET_PDEATHSIG, pid ? 0 : SIGKILL);
    while (pid == 0)
        pause();
    return pid;
}

static int open_targets(void **state)
{
    (void)state;
    char folder[160];
    const char *golden = getenv("MEDLEY_GOLDEN");
    assert_non_null(golden);
    snprintf(targets.state, sizeof targets.state, "/tmp/medley-sandbox-XXXXXX");
    assert_non_null(mkdtemp(targets.state));
    snprintf(folder, sizeof folder, "%s/drivers", targets.state);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(targets.key, sizeof targets.key, "%s/node.key", targets.state);
    snprintf(targets.outside, sizeof targets.outside, "%s/made", targets.state);
    snprintf(targets.link, sizeof targets.link, "%s/link", targets.state);
    snprintf(targets.renamed, sizeof targets.renamed, "%s/renamed", targets.state);
    snprintf(targets.kept, sizeof targets.kept, "%s/drivers/key", targets.state);
    snprintf(targets.unix_socket, sizeof targets.unix_socket, "%s/socket", targets.state);
    snprintf(targets.abstract, sizeof targets.abstract, "medley-sandbox-%ld", (long)getpid());
    snprintf(targets.model, sizeof targets.model, "%s/models/llama.json", golden);
    targets.parent = getpid();
    targets.other = start_other();
    targets.parent_fd = open(targets.key, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(targets.parent_fd >= 0);
    open_listeners();
    char path[200];
    snprintf(path, sizeof path, "%s/targets", folder);
    assert_true(transfer_file(path, true, &targets, sizeof targets));
    setenv("MEDLEY_TEST_SECRET", "x", 1);
    return 0;
}

static int close_targets(void **state)
{
    (void)state;
    char command[128];
    kill(targets.other, SIGKILL);
    waitpid(targets.other, NULL, 0);
    close(listener_tcp);
    close(listener_unix);
    close(listener_abstract);
    close(targets.parent_fd);
    remove("/dev/shm/medley-hostile");
    snprintf(command, sizeof command, "rm -rf %s", targets.state);
    return system(command);
}

static struct report run_hostile(const char *mode, bool no_sandbox)
{
    static struct report report;
    char folder[160], path[1024];
    struct error err = {0};
    struct child_world world = {.n_stages = 1, .devices = {mode}};
    struct model *model;
    snprintf(folder, sizeof folder, "%s/drivers", targets.state);
    snprintf(path, sizeof path, "%s/models/llama.gguf", getenv("MEDLEY_GOLDEN"));
    assert_int_equal(model_open(path, &model, &err), ERROR_NONE);
    world.model = model;
    const struct children_options options = {.n_cpu_threads = 1,
                                             .pause_ms = 1,
                                             .start_ms = 20000,
                                             .folder = folder,
                                             .no_sandbox = no_sandbox};
    world.options = (struct driver_options){.n_slots = 1, .context = 64};
    assert_int_equal(children_open(&options, &world.children, &err), ERROR_NONE);
    assert_int_equal(child_world_try(&world, &err), ERROR_DEVICE);
    if (!strstr(err.text, "tried everything"))
        fail_msg("%s: %s", mode, err.text);
    children_close(world.children);
    model_close(model);
    report = (struct report){0};
    snprintf(path, sizeof path, "%s/%s", folder, mode);
    assert_true(transfer_file(path, false, &report, sizeof report)); /* it may write there */
    assert_true(report.whole);
    return report;
}

static bool is_refused(int code)
{
    return code == EPERM || code == EACCES || code == EXDEV; /* the last: Landlock's, of links */
}

/* Attacks that the kernel's parts must refuse in this mode. What was refused without any sandbox
 * proves nothing. */
static void expect_refused(const char *mode, int by, int landlock)
{
    const struct report without = run_hostile("hostile:free", true),
                        report = run_hostile(mode, strcmp(mode, "hostile:whole") != 0);
    int n_failed = 0, n_lacking = 0, n_tried = 0;
    for (int i = 0; i < N_ATTACKS; i++) {
        const struct attack *attack = &attacks[i];
        const bool by_calls = attack->by & by & BY_CALLS, by_files = attack->by & by & BY_FILES;
        if (!by_calls && !by_files)
            continue;
        if (is_refused(without.codes[i])) {
            print_message("not run: %s (%s without a sandbox)\n", attack->name,
                          strerror(without.codes[i]));
        } else if (!by_calls && landlock < attack->since) {
            print_message("not run: %s (needs Landlock %d)\n", attack->name, attack->since);
            n_lacking++;
        } else if (n_tried++, !is_refused(report.codes[i])) {
            print_error("%s: could %s (%s)\n", mode, attack->name, strerror(report.codes[i]));
            n_failed++;
        }
    }
    assert_int_equal(n_failed, 0);
    assert_true(n_tried > 15);
    if (n_lacking)
        skip(); /* never passed: this kernel lacks a part */
}

static void files_are_refused(void **state)
{
    (void)state;
    if (!landlock_version()) {
        print_message("not run: this kernel has no Landlock\n");
        skip();
    }
    expect_refused("hostile:files", BY_FILES, landlock_version());
}

static void calls_are_refused(void **state)
{
    (void)state;
    if (!calls_supported()) {
        print_message("not run: this kernel has no seccomp\n");
        skip();
    }
    expect_refused("hostile:calls", BY_CALLS, 0);
}

static void the_whole_sandbox_refuses_all(void **state)
{
    (void)state;
    if (!landlock_version() || !calls_supported()) {
        print_message("not run: this kernel lacks a part\n");
        skip();
    }
    expect_refused("hostile:whole", BY_FILES | BY_CALLS, landlock_version());
}

static void a_process_inherits_nothing(void **state)
{
    (void)state;
    const struct report report = run_hostile("hostile:heir", false);
    assert_int_equal(report.n_descriptors, 0);
    assert_int_equal(report.n_secrets, 0);
    assert_false(report.may_dump);
    assert_false(report.is_privileged);
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backend_gets_its_own_device_files),
        cmocka_unit_test(no_rule_is_wide),
        cmocka_unit_test(rules_follow_the_environment),
        cmocka_unit_test(too_many_paths_are_refused),
        cmocka_unit_test(work_on_files_gets_nothing_but_them),
        cmocka_unit_test(an_environment_is_clean),
        cmocka_unit_test(an_environment_has_a_limit),
        cmocka_unit_test(what_lacks_is_said),
        cmocka_unit_test(files_are_refused),
        cmocka_unit_test(calls_are_refused),
        cmocka_unit_test(the_whole_sandbox_refuses_all),
        cmocka_unit_test(a_process_inherits_nothing),
    };
    return cmocka_run_group_tests_name("sandbox", tests, open_targets, close_targets);
}
