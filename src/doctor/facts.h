/* What a machine says of itself, and what follows from it.
 *
 * facts_read() is thin: it looks at files, interfaces, ports and the clock, and changes nothing.
 * facts_judge() is pure. Unknown is not bad: what could not be read is said as a hint, or not at
 * all. Linux; elsewhere most stays unknown. */
#pragma once

#include "doctor/findings.h"

#include <limits.h>
#include <sys/types.h>

struct facts_wanted {
    const char *root;  /* the folder in which /etc, /sys and /run are looked up; NULL: "/" */
    const char *state; /* the state folder; "": nothing is kept */
    uint16_t port;     /* of the node's links, TCP and UDP */
    bool node_runs;    /* the port is ours, then */
};

enum tristate { FACT_UNKNOWN, FACT_NO, FACT_YES };

struct machine_facts {
    enum tristate clock_synchronised;
    double clock_error_s; /* as the kernel estimates it; where it is synchronised */

    char state[PATH_MAX];
    enum tristate state_exists;
    mode_t state_mode;
    bool state_is_others; /* it belongs to another user */
    enum tristate disk_known;
    uint64_t disk_free_bytes; /* where the state folder is or would be */

    enum tristate sleep_is_masked; /* systemd cannot suspend */
    char idle_action[32];          /* logind's, "" where it is not set */
    char lid_action[32];           /* HandleLidSwitch, "" where it is not set */
    bool has_battery;
    bool has_desktop; /* one that suspends when nobody types */

    bool has_ufw, has_firewalld;  /* one that is on */
    enum tristate nft_lacks_port; /* nftables' own rules are loaded at start, and drop it */
    uint16_t port;
    bool node_runs;
    enum tristate port_is_free;

    uint32_t n_interfaces;           /* up, with an address, without the loopback */
    uint32_t n_multicast_interfaces; /* of these */

    uint32_t n_nvidia, n_amd, n_intel; /* display controllers on the PCI bus */
    bool has_nvidia_module;
};

void facts_read(const struct facts_wanted *wanted, struct machine_facts *out);
void facts_judge(const struct machine_facts *facts, struct findings *findings);

/* The one thing that is mended without asking back: the state folder is its owner's alone. `said`
 * gets what will be done; false: nothing is to be done. facts_fix() does it; errno's value, 0:
 * done. It is undone with the chmod that is said. */
bool facts_fixable(const struct machine_facts *facts, char *said, size_t size);
int facts_fix(const struct machine_facts *facts);
