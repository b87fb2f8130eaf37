#include "doctor/dial_mend.h"

#include <stddef.h>
#include <string.h>

const char *doctor_dial_mend(const char *why)
{
    static const struct {
        const char *words, *mend;
    } known[] = {
        {"connection refused", "there: the machine is on and nothing listens at that port: start "
                               "`medley up`; or it has another port now"},
        {"unknown host",
         "the name leads nowhere: mend it in DNS or /etc/hosts, or dial by address"},
        {"cannot look up", "the name could not be looked up: is this machine's DNS in order?"},
        {"certificate", "it does not take our certificate, or we not its: are the clocks right "
                        "(`medley doctor` on both), and was one of the two removed from the "
                        "cluster? `medley leave` and join again there"},
        {"version", "the same version of medley on both machines"},
        {"another node answers", "its address belongs to another machine now: has it a new one? "
                                 "`medley up` there tells it to the others"},
        {"unreachable", "no way leads there: is it in another network, is the cable in, does a "
                        "VPN run?"},
        {"nobody answers", "nothing answers at all: the machine is off or asleep, has another "
                           "address, or a firewall drops the port; `medley doctor` there says"},
        {"timed out", "nothing answers at all: the machine is off or asleep, has another "
                      "address, or a firewall drops the port; `medley doctor` there says"},
    };
    for (size_t i = 0; why && i < sizeof known / sizeof *known; i++) {
        if (strcasestr(why, known[i].words))
            return known[i].mend;
    }
    return "there: is the machine on, does `medley up` run, does its firewall let the port in? "
           "`medley doctor` there says";
}
