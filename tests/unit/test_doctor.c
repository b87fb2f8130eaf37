/* `medley doctor`: what follows from which facts, where they are read from, and what the command
 * says of a cluster; nothing is changed but by --fix, and that is said before. */
#include "doctor/dial_mend.h"
#include "doctor/facts.h"
#include "doctor/nft_rules.h"
#include "doctor/pages_judge.h"
#include "fake_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct findings findings;

static const struct finding *find(const char *area, const char *part)
{
    for (uint32_t i = 0; i < findings.n; i++) {
        if (strcmp(findings.list[i].area, area) == 0 && strstr(findings.list[i].text, part))
            return &findings.list[i];
    }
    return NULL;
}

static void expect(enum finding_level level, const char *area, const char *part, const char *mend)
{
    const struct finding *found = find(area, part);
    if (!found)
        fail_msg("nothing of %s says '%s'", area, part);
    assert_int_equal(found->level, level);
    if (!strstr(found->mend, mend))
        fail_msg("%s: '%s' is no mend with '%s'", area, found->mend, mend);
    /* a problem without a way out is no help */
    assert_true(level != FINDING_PROBLEM || found->mend[0]);
}

static void judge(const struct machine_facts *facts)
{
    findings = (struct findings){0};
    facts_judge(facts, &findings);
}

static struct machine_facts good(void)
{
    return (struct machine_facts){.clock_synchronised = FACT_YES,
                                  .clock_error_s = 0.01,
                                  .state = "/state",
                                  .state_exists = FACT_YES,
                                  .state_mode = 0700,
                                  .disk_known = FACT_YES,
                                  .disk_free_bytes = 50ull << 30,
                                  .sleep_is_masked = FACT_YES,
                                  .port = 7979,
                                  .port_is_free = FACT_YES,
                                  .n_interfaces = 2,
                                  .n_multicast_interfaces = 1};
}

static void test_a_machine_in_order(void **state)
{
    (void)state;
    const struct machine_facts facts = good();
    judge(&facts);
    assert_int_equal(findings_count(&findings, FINDING_FINE), findings.n);
    assert_true(findings.n >= 7);
    assert_false(findings.overflows);
}

static void test_each_fault_has_its_mend(void **state)
{
    (void)state;
    struct machine_facts facts = good();
    facts.clock_synchronised = FACT_NO;
    facts.disk_free_bytes = 1 << 20;
    facts.state_mode = 0777;
    facts.sleep_is_masked = FACT_NO;
    facts.has_battery = facts.has_desktop = true;
    snprintf(facts.idle_action, sizeof facts.idle_action, "suspend-then-hibernate");
    facts.port_is_free = FACT_NO;
    facts.n_multicast_interfaces = 0;
    facts.has_ufw = facts.has_firewalld = true;
    facts.n_nvidia = 1;
    judge(&facts);
    expect(FINDING_PROBLEM, "clock", "not synchronised", "set-ntp true");
    expect(FINDING_PROBLEM, "disk", "0.0 GiB", "MEDLEY_STATE_DIR");
    expect(FINDING_PROBLEM, "disk", "mode 777", "--fix");
    expect(FINDING_PROBLEM, "power", "when it is idle", "IdleAction=ignore");
    expect(FINDING_HINT, "power", "lid", "HandleLidSwitch");
    expect(FINDING_HINT, "power", "desktop", "mask sleep.target");
    expect(FINDING_PROBLEM, "port", "7979 is taken", "--listen");
    expect(FINDING_PROBLEM, "multicast", "cannot find each other", "medley join");
    expect(FINDING_HINT, "firewall", "ufw", "ufw allow 7979");
    expect(FINDING_HINT, "firewall", "firewalld", "--add-port=7979/udp");
    expect(FINDING_HINT, "drivers", "1 NVIDIA GPU,", "modprobe nvidia");
    facts = good();
    facts.n_interfaces = facts.n_multicast_interfaces = 0;
    facts.state_is_others = true;
    facts.clock_error_s = 2;
    judge(&facts);
    expect(FINDING_PROBLEM, "network", "no network", "ip address");
    expect(FINDING_PROBLEM, "disk", "another user", "chown");
    expect(FINDING_HINT, "clock", "2.0 s", "timedatectl");
}

static void test_rules_that_drop_the_port_are_seen(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool lacks;
    } rows[] = {
        {"table inet f {\n chain in {\n  type filter hook input priority 0; policy drop;\n"
         "  tcp dport { 22, 80 } accept\n }\n}\n",
         true},
        {"table inet f {\n chain in {\n  type filter hook input priority 0; policy drop;\n"
         "  tcp dport { 22, 7979 } accept\n }\n}\n",
         false},
        {"chain in { type filter hook input priority 0; policy accept;\n"
         "  udp dport 7000-8000 accept\n  drop\n }",
         false},
        {"chain in { type filter hook input priority 0; policy accept;\n"
         "  udp dport 8000-9000 accept\n  reject\n }",
         true},
        {"chain in { type filter hook input priority 0; policy accept;\n"
         "  ip saddr 7979 drop # all of 7979\n }",
         false},
        {"chain out { type filter hook output priority 0; policy drop; }\n"
         "chain in { type filter hook input priority 0; policy accept; }",
         false},
        {"# policy drop\nchain in { type filter hook input priority 0; }", false},
        {"chain in { type filter hook input priority 0; policy drop; tcp dport 79790 accept }",
         true},
        {"", false},
        {"}}}} hook input policy drop", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (nft_rules_lack(rows[i].text, 7979) != rows[i].lacks)
            fail_msg("row %zu: %s", i, rows[i].text);
    }
    struct machine_facts facts = good();
    facts.nft_lacks_port = FACT_YES;
    judge(&facts);
    expect(FINDING_HINT, "firewall", "none lets in port 7979", "tcp dport 7979 accept");
    assert_non_null(strstr(find("firewall", "nftables")->mend, "systemctl reload nftables"));
}

/* Each in the words that it comes in. */
static void test_why_a_dial_fails_has_its_mend(void **state)
{
    (void)state;
    static const struct {
        const char *why, *mend;
    } rows[] = {
        {"cannot connect: connection refused", "nothing listens"},
        {"unknown host tower: unknown node or service", "/etc/hosts"},
        {"nobody answers", "firewall drops"},
        {"cannot connect: connection timed out", "firewall drops"},
        {"cannot connect: network is unreachable", "another network"},
        {"the handshake failed: certificate verify failed", "clocks"},
        {"refused by the other end: version 2.0; update one of the two", "same version"},
        {"another node answers at tower port 7979: ab…", "another machine"},
        {"an error of tomorrow", "medley doctor"},
        {NULL, "medley doctor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(doctor_dial_mend(rows[i].why), rows[i].mend))
            fail_msg("%s: %s", rows[i].why, doctor_dial_mend(rows[i].why));
        assert_true(strlen(doctor_dial_mend(rows[i].why)) < sizeof((struct finding *)0)->mend);
    }
}

static void test_unknown_is_no_problem(void **state)
{
    (void)state;
    const struct machine_facts facts = {.n_interfaces = 1, .n_multicast_interfaces = 1};
    judge(&facts);
    assert_int_equal(findings_count(&findings, FINDING_PROBLEM), 0);
    expect(FINDING_HINT, "clock", "could not be read", "timedatectl");
    expect(FINDING_HINT, "disk", "no state folder", "MEDLEY_STATE_DIR");
}

static void test_findings_are_bounded_and_printable(void **state)
{
    (void)state;
    findings = (struct findings){0};
    for (uint32_t i = 0; i < FINDINGS_MAX + 1; i++)
        findings_add(&findings, FINDING_HINT, "an area with a long name", "a\tb", "x\x1b[2J%0500u",
                     i);
    assert_int_equal(findings.n, FINDINGS_MAX);
    assert_true(findings.overflows);
    assert_memory_equal(findings.list[0].text, "x?[2J0", 6);
    assert_string_equal(findings.list[0].mend, "a?b");
}

/* ---- reading ------------------------------------------------------------------------------- */

static char folder[64];

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static void make_host(const char *commands)
{
    char line[2048];
    snprintf(folder, sizeof folder, "/tmp/medley-doctor-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(line, sizeof line, "set -e; cd %s; %s", folder, commands);
    run(line);
}

static void remove_host(void)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    run(line);
}

static void test_a_made_up_host_is_read(void **state)
{
    (void)state;
    make_host(
        "mkdir -p etc/systemd/system/sysinit.target.wants;"
        "touch etc/systemd/system/sysinit.target.wants/nftables.service;"
        "echo 'chain c { type filter hook input priority 0; policy drop; }' >etc/nftables.conf;"
        "mkdir -p etc/ufw etc/systemd/logind.conf.d etc/systemd/system run/firewalld "
        "sys/class/power_supply/BAT0 sys/bus/pci/devices/a sys/bus/pci/devices/b usr/bin;"
        "echo ENABLED=yes >etc/ufw/ufw.conf;"
        "printf '[Login]\\n#IdleAction=poweroff\\nIdleAction=ignore\\n' "
        ">etc/systemd/logind.conf;"
        "echo IdleAction=suspend >etc/systemd/logind.conf.d/a.conf;"
        "echo HandleLidSwitch=lock >>etc/systemd/logind.conf.d/a.conf;"
        "ln -s /dev/null etc/systemd/system/suspend.target; touch usr/bin/gnome-session;"
        "echo Battery >sys/class/power_supply/BAT0/type;"
        "echo 0x030200 >sys/bus/pci/devices/a/class; echo 0x10de >sys/bus/pci/devices/a/vendor;"
        "echo 0x020000 >sys/bus/pci/devices/b/class; echo 0x8086 >sys/bus/pci/devices/b/vendor");
    struct machine_facts facts;
    char inside[128];
    snprintf(inside, sizeof inside, "%s/not/there/yet", folder);
    const struct facts_wanted wanted = {.root = folder, .state = inside, .node_runs = true};
    facts_read(&wanted, &facts);
    assert_int_equal(facts.nft_lacks_port, FACT_YES);
    assert_true(facts.has_ufw && facts.has_firewalld && facts.has_battery && facts.has_desktop);
    assert_string_equal(facts.idle_action, "suspend");
    assert_string_equal(facts.lid_action, "lock");
    assert_int_equal(facts.sleep_is_masked, FACT_YES);
    assert_int_equal(facts.n_nvidia, 1);
    assert_int_equal(facts.n_intel, 0); /* a network card */
    assert_false(facts.has_nvidia_module);
    assert_int_equal(facts.state_exists, FACT_NO);
    assert_int_equal(facts.disk_known, FACT_YES); /* of the folder above it */
    remove_host();
}

static void test_only_the_state_folder_is_mended(void **state)
{
    (void)state;
    make_host("mkdir -m 777 state");
    char path[128], said[256];
    snprintf(path, sizeof path, "%s/state", folder);
    const struct facts_wanted wanted = {.root = folder, .state = path, .node_runs = true};
    struct machine_facts facts;
    facts_read(&wanted, &facts);
    assert_true(facts_fixable(&facts, said, sizeof said));
    assert_non_null(strstr(said, "chmod 700"));
    assert_non_null(strstr(said, "undone with chmod 777"));
    assert_int_equal(facts_fix(&facts), 0);
    facts_read(&wanted, &facts);
    assert_int_equal(facts.state_mode, 0700);
    assert_false(facts_fixable(&facts, said, sizeof said));
    assert_int_not_equal(facts_fix(&facts), 0);
    remove_host();
}

/* ---- the command --------------------------------------------------------------------------- */

static char out[1 << 16];

static int doctor(const char *words)
{
    char line[256];
    snprintf(line, sizeof line, "\"$MEDLEY_BINARY\" doctor %s 2>&1", words);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    out[fread(out, 1, sizeof out - 1, pipe)] = 0;
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_out(const char *part)
{
    if (!strstr(out, part))
        fail_msg("no '%s' in\n%s", part, out);
}

#define NODE(name, more) "{\"id\":\"" name "\",\"name\":\"" name "\",\"self\":false," more "}"

static void test_the_cluster_is_asked(void **state)
{
    (void)state;
    static const struct fake_answer answers[] = {
        {"nodes",
         {"{\"nodes\":[" NODE("laptop", "\"state\":\"up\",\"version\":\"9.9\"") "," NODE(
             "tower",
             "\"state\":\"silent\",\"heard_ms\":65000,\"version\":null,\"dial_address\":\"10.0.0.7:"
             "7979\","
             "\"dial_problem\":\"cannot connect: connection refused\"") "," NODE("attic",
                                                                                 "\"state\":"
                                                                                 "\"waiting"
                                                                                 "\"") "]}"
                                                                                       "\n"},
         NULL},
        {"alerts",
         {"{\"alerts\":[{\"text\":\"gpu0 is hot\",\"mend\":\"dust it\"}],\"cleared\":[]}\n"},
         NULL}};
    setenv("MEDLEY_HOST_DRIVER", "NVIDIA 570.86: 4 libraries of the host\nno node; mend: make it",
           1);
    fake_node_answers(answers, sizeof answers / sizeof *answers);
    assert_int_equal(doctor("--all"), 1);
    expect_out("PROBLEM  peers     tower is silent, last heard 65 s ago; dialling "
               "10.0.0.7:7979: cannot connect: connection refused");
    expect_out("nothing listens at that port");
    expect_out("fine     peers     laptop is up");
    expect_out("laptop runs medley 9.9");
    expect_out("attic waits to be let in");
    expect_out("PROBLEM  alerts    gpu0 is hot");
    expect_out("mend: dust it");
    expect_out("fine     drivers   NVIDIA 570.86: 4 libraries of the host");
    expect_out("PROBLEM  drivers   no node\n");
    expect_out("mend: make it");
    expect_out("cpu: ");
    unsetenv("MEDLEY_HOST_DRIVER");
}

static void test_models_in_small_pages_have_their_mend(void **state)
{
    (void)state;
    struct model_pages pages = {
        .name = "a", .path = "/m/a b.gguf", .n_places = 64, .n_large = 31, .can_be_large = true};
    char longer[300];
    findings = (struct findings){0};
    pages_judge(&pages, &findings);
    expect(FINDING_HINT, "models", "a lies in memory in small pages (31 of 64",
           "dd if='/m/a b.gguf' iflag=nocache count=0");
    pages = (struct model_pages){"b", "/it's.gguf", 8, 0, true};
    pages_judge(&pages, &findings);
    expect(FINDING_HINT, "models", "b lies in memory", "dd if=FILE ");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    pages = (struct model_pages){"c", longer, 8, 0, true};
    pages_judge(&pages, &findings);
    expect(FINDING_HINT, "models", "c lies in memory", "dd if=FILE ");
    /* in large ones; hardly there; not known; a kernel or a disk that has none */
    static const struct model_pages fine[] = {{"d", "/d", 64, 32, true},
                                              {"e", "/e", 7, 0, true},
                                              {"f", "/f", 0, 0, true},
                                              {"g", "/g", 64, 0, false}};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        pages_judge(&fine[i], &findings);
    assert_int_equal(findings.n, 3);
}

static void test_a_node_that_does_not_answer(void **state)
{
    (void)state;
    static const struct fake_answer answers[] = {{"nodes", {"nonsense\n"}, NULL}};
    fake_node_answers(answers, 1);
    assert_int_equal(doctor("--json"), 1);
    expect_out("this machine's node does not answer");
    expect_out("\"level\": \"problem\"");
}

static void test_wrong_words(void **state)
{
    (void)state;
    assert_int_equal(doctor("--heal"), 2);
    assert_int_equal(doctor("me"), 2);
}

static int begin(void **state)
{
    (void)state;
    fake_node_begin();
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake_node_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_machine_in_order),
        cmocka_unit_test(test_each_fault_has_its_mend),
        cmocka_unit_test(test_rules_that_drop_the_port_are_seen),
        cmocka_unit_test(test_why_a_dial_fails_has_its_mend),
        cmocka_unit_test(test_unknown_is_no_problem),
        cmocka_unit_test(test_findings_are_bounded_and_printable),
        cmocka_unit_test(test_a_made_up_host_is_read),
        cmocka_unit_test(test_only_the_state_folder_is_mended),
        cmocka_unit_test(test_the_cluster_is_asked),
        cmocka_unit_test(test_models_in_small_pages_have_their_mend),
        cmocka_unit_test(test_a_node_that_does_not_answer),
        cmocka_unit_test(test_wrong_words),
    };
    return cmocka_run_group_tests_name("doctor", tests, begin, end);
}
