/* A library in the place of libcuda.so.1: one GPU at 0000:01:00.0 with 128 multiprocessors. */
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetByPCIBusId(int *out, const char *pci);
EXPORT int cuDeviceGetAttribute(int *out, int attribute, int device);

int cuInit(unsigned flags)
{
    return flags ? 1 : 0;
}

int cuDeviceGetByPCIBusId(int *out, const char *pci)
{
    *out = 3;
    return strcmp(pci, "0000:01:00.0") == 0 ? 0 : 100;
}

int cuDeviceGetAttribute(int *out, int attribute, int device)
{
    *out = attribute == 16 ? 128 : attribute == 1 ? 1024 : -1;
    return device == 3 ? 0 : 101;
}
