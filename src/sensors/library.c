#include "sensors/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *library_open(const char *path, char *reason, size_t size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    snprintf(reason, size, "%s", why ? why : "");
    return library;
}

void library_close(void *library)
{
    if (library)
        dlclose(library);
}

void library_bind(void *library, const struct library_symbol *symbols, size_t n_symbols)
{
    for (size_t i = 0; i < n_symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && symbols[i].older)
            address = dlsym(library, symbols[i].older);
        memcpy(symbols[i].function, &address,
               sizeof address); /* ISO C has no cast from data to function */
    }
}
