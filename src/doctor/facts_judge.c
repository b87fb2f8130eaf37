#include "doctor/facts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { STATE_MODE = 0700, STATE_MODE_BAD = 022 };
static const double clock_error_max_s = 1;           /* events of machines stay in order */
static const uint64_t disk_short_bytes = 2ull << 30; /* the log, weights' notes, records */
static const double gib = 1024.0 * 1024.0 * 1024.0;

static void judge_clock(const struct machine_facts *facts, struct findings *out)
{
    if (facts->clock_synchronised == FACT_NO)
        findings_add(out, FINDING_PROBLEM, "clock", "sudo timedatectl set-ntp true",
                     "the clock is not synchronised: certificates, invitations and times of events "
                     "go by it");
    else if (facts->clock_synchronised == FACT_UNKNOWN)
        findings_add(out, FINDING_HINT, "clock", "timedatectl",
                     "whether the clock is synchronised could not be read");
    else if (facts->clock_error_s > clock_error_max_s)
        findings_add(out, FINDING_HINT, "clock", "timedatectl timesync-status",
                     "the clock may be wrong by %.1f s", facts->clock_error_s);
    else
        findings_add(out, FINDING_FINE, "clock", NULL, "synchronised, to %.3f s",
                     facts->clock_error_s);
}

static void judge_disk(const struct machine_facts *facts, struct findings *out)
{
    if (!facts->state[0]) {
        findings_add(
            out, FINDING_HINT, "disk", "unset MEDLEY_STATE_DIR",
            "no state folder: identity, cluster and calibrations are forgotten at the end");
        return;
    }
    if (facts->state_exists == FACT_YES && facts->state_is_others)
        findings_add(out, FINDING_PROBLEM, "disk", "sudo chown -R \"$USER\" FOLDER",
                     "%s belongs to another user", facts->state);
    else if (facts->state_exists == FACT_YES && (facts->state_mode & STATE_MODE_BAD))
        findings_add(out, FINDING_PROBLEM, "disk", "medley doctor --fix",
                     "others can write into %s (mode %03o): what is in it is not trusted",
                     facts->state, (unsigned)facts->state_mode);
    if (facts->disk_known != FACT_YES)
        findings_add(out, FINDING_HINT, "disk", NULL, "no disk found for %s", facts->state);
    else
        findings_add(
            out, facts->disk_free_bytes < disk_short_bytes ? FINDING_PROBLEM : FINDING_FINE, "disk",
            facts->disk_free_bytes < disk_short_bytes
                ? "make room, or name another folder with MEDLEY_STATE_DIR"
                : NULL,
            "%.1f GiB are free for %s", (double)facts->disk_free_bytes / gib, facts->state);
}

static bool judge_says_suspend(const char *action)
{
    return strncmp(action, "suspend", 7) == 0 || strncmp(action, "hibernate", 9) == 0 ||
           strcmp(action, "hybrid-sleep") == 0 || strcmp(action, "sleep") == 0;
}

/* What will end a node that nobody touches. */
static void judge_power(const struct machine_facts *facts, struct findings *out)
{
    uint32_t before = out->n;
    if (facts->sleep_is_masked == FACT_YES) {
        findings_add(out, FINDING_FINE, "power", NULL, "this machine cannot suspend");
        return;
    }
    if (judge_says_suspend(facts->idle_action))
        findings_add(out, FINDING_PROBLEM, "power",
                     "IdleAction=ignore in /etc/systemd/logind.conf, then restart",
                     "logind suspends this machine when it is idle (IdleAction=%s)",
                     facts->idle_action);
    if (facts->has_battery && (!facts->lid_action[0] || judge_says_suspend(facts->lid_action)))
        findings_add(out, FINDING_HINT, "power",
                     "HandleLidSwitchExternalPower=ignore in /etc/systemd/logind.conf",
                     "closing the lid suspends this machine, and its node is lost to the cluster");
    if (facts->has_desktop)
        findings_add(out, FINDING_HINT, "power",
                     "sudo systemctl mask sleep.target suspend.target, or switch it off in the "
                     "desktop's settings",
                     "the desktop may suspend this machine when nobody types");
    if (out->n == before)
        findings_add(out, FINDING_FINE, "power", NULL, "nothing found that suspends this machine");
}

static void judge_network(const struct machine_facts *facts, struct findings *out)
{
    char mend[256];
    if (facts->node_runs)
        findings_add(out, FINDING_FINE, "port", NULL, "the node runs");
    else if (facts->port_is_free == FACT_NO)
        findings_add(out, FINDING_PROBLEM, "port", "medley up --listen :OTHER, or end that program",
                     "port %u is taken by another program (ss -tulpn shows which)",
                     (unsigned)facts->port);
    else if (facts->port_is_free == FACT_YES)
        findings_add(out, FINDING_FINE, "port", NULL, "port %u is free", (unsigned)facts->port);
    if (facts->n_interfaces == 0)
        findings_add(out, FINDING_PROBLEM, "network", "ip address",
                     "no network: no interface but the loopback is up");
    else if (facts->n_multicast_interfaces == 0)
        findings_add(
            out, FINDING_PROBLEM, "multicast", "medley join CODE HOST names a machine",
            "no interface does multicast, so machines cannot find each other by themselves");
    else
        findings_add(out, FINDING_FINE, "multicast", NULL, "%u of %u interfaces do it",
                     (unsigned)facts->n_multicast_interfaces, (unsigned)facts->n_interfaces);
    if (facts->has_ufw) {
        snprintf(mend, sizeof mend, "sudo ufw allow %u && sudo ufw allow 5353/udp",
                 (unsigned)facts->port);
        findings_add(out, FINDING_HINT, "firewall", mend,
                     "ufw is on: it must let in port %u (TCP and UDP), and 5353/udp for discovery",
                     (unsigned)facts->port);
    }
    if (facts->has_firewalld) {
        snprintf(mend, sizeof mend,
                 "sudo firewall-cmd --permanent --add-port=%u/tcp --add-port=%u/udp "
                 "--add-service=mdns && sudo firewall-cmd --reload",
                 (unsigned)facts->port, (unsigned)facts->port);
        findings_add(
            out, FINDING_HINT, "firewall", mend,
            "firewalld is on: it must let in port %u (TCP and UDP), and mdns for discovery",
            (unsigned)facts->port);
    }
    if (facts->nft_lacks_port == FACT_YES) {
        snprintf(mend, sizeof mend,
                 "in the chain of input of /etc/nftables.conf: tcp dport %u accept, udp dport { "
                 "%u, 5353 } accept; then sudo systemctl reload nftables",
                 (unsigned)facts->port, (unsigned)facts->port);
        findings_add(out, FINDING_HINT, "firewall", mend,
                     "nftables' rules drop what comes in, and none lets in port %u",
                     (unsigned)facts->port);
    } else if (!facts->has_ufw && !facts->has_firewalld) {
        findings_add(out, FINDING_FINE, "firewall", NULL,
                     facts->nft_lacks_port == FACT_NO
                         ? "neither ufw nor firewalld is on; nftables' file of rules lets in the "
                           "port, or all"
                         : "neither ufw nor firewalld is on; rules of nftables that are in no file "
                           "are root's to read");
    }
}

static void judge_cards(const struct machine_facts *facts, struct findings *out)
{
    if (facts->n_nvidia + facts->n_amd + facts->n_intel == 0)
        findings_add(out, FINDING_FINE, "drivers", NULL,
                     "no GPU of NVIDIA, AMD or Intel is on the PCI bus: the CPU computes");
    if (facts->n_nvidia && !facts->has_nvidia_module)
        findings_add(out, FINDING_HINT, "drivers",
                     "install NVIDIA's driver, then sudo modprobe nvidia",
                     "%u NVIDIA GPU%s, and the kernel does not run NVIDIA's driver",
                     (unsigned)facts->n_nvidia, facts->n_nvidia == 1 ? "" : "s");
}

void facts_judge(const struct machine_facts *facts, struct findings *findings)
{
    judge_cards(facts, findings);
    judge_clock(facts, findings);
    judge_disk(facts, findings);
    judge_power(facts, findings);
    judge_network(facts, findings);
}

bool facts_fixable(const struct machine_facts *facts, char *said, size_t size)
{
    if (facts->state_exists != FACT_YES || facts->state_is_others ||
        !(facts->state_mode & STATE_MODE_BAD))
        return false;
    snprintf(said, size, "chmod %o %s   (undone with chmod %o)", STATE_MODE, facts->state,
             (unsigned)facts->state_mode);
    return true;
}

int facts_fix(const struct machine_facts *facts)
{
    char unused[8];
    if (!facts_fixable(facts, unused, sizeof unused))
        return EINVAL;
    return chmod(facts->state, STATE_MODE) == 0 ? 0 : errno;
}
