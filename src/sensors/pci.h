/* PCI devices, by their addresses in /sys/bus/pci/devices. */
#pragma once

#include "sensors/sysfs.h"

/* What a PCI vendor is called by the bus (https://pcisig.com/membership/member-companies). */
enum pci_vendor { PCI_VENDOR_AMD = 0x1002, PCI_VENDOR_NVIDIA = 0x10de, PCI_VENDOR_INTEL = 0x8086 };

struct pci_address {
    uint32_t domain, bus, device, function;
};

/* Reads "0000:c1:00.0", also with the 8-digit domain of NVML. False for anything else. Pure. */
bool pci_parse(const char *text, struct pci_address *out);

/* "0000:c1:00.0", as the kernel names the device's folder. */
enum { PCI_NAME_BYTES = 24 };
void pci_name(const struct pci_address *address, char name[PCI_NAME_BYTES]);

/* The name of the folder when `text` is the address of a device of that vendor that is there
 * now. */
bool pci_find(const struct sysfs *fs, const char *text, enum pci_vendor vendor,
              char name[PCI_NAME_BYTES]);

/* Does this driver of the kernel run any PCI device? */
bool pci_driver_runs(const struct sysfs *fs, const char *driver);

/* Display controllers (PCI class 0x03) of a vendor; the name of the first is written to `name`. */
uint32_t pci_count_displays(const struct sysfs *fs, enum pci_vendor vendor,
                            char name[PCI_NAME_BYTES]);
