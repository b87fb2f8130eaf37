#include "gpu/factory.h"

#include <assert.h>
#include <stddef.h>

/* A GPU that two backends can drive goes to the first of the chain: a vendor's own backend
 * before the cross-vendor ones. On Windows the cross-vendor backend comes first, since
 * every vendor's Windows driver brings it; ggml has no DirectML, so that is Vulkan. */
static const char *const chain_linux[] = {"cuda", "hip", "vulkan", "sycl", "opencl", "cpu", NULL};
static const char *const chain_windows[] = {"vulkan", "cuda", "hip", "sycl", "opencl", "cpu", NULL};
static const char *const chain_macos[] = {"metal", "cpu", NULL};
static const char *const chain_android[] = {"opencl", "vulkan", "cpu", NULL};

enum platform factory_platform(void)
{
#if defined(__ANDROID__)
    return PLATFORM_ANDROID;
#elif defined(__APPLE__)
    return PLATFORM_MACOS;
#elif defined(_WIN32)
    return PLATFORM_WINDOWS;
#else
    return PLATFORM_LINUX;
#endif
}

const char *factory_platform_name(enum platform platform)
{
    static const char *const names[] = {"Linux", "Windows", "macOS", "Android"};
    assert(platform <= PLATFORM_ANDROID);
    return names[platform];
}

const char *const *factory_chain(enum platform platform)
{
    switch (platform) {
    case PLATFORM_LINUX:
        return chain_linux;
    case PLATFORM_WINDOWS:
        return chain_windows;
    case PLATFORM_MACOS:
        return chain_macos;
    case PLATFORM_ANDROID:
        return chain_android;
    }
    assert(platform <= PLATFORM_ANDROID);
    return NULL;
}
