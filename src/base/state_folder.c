#include "base/state_folder.h"

#include <stdio.h>
#include <stdlib.h>

bool state_folder_file(const char *name, char *path, size_t size)
{
    const char *own = getenv("MEDLEY_STATE_DIR"), *state = getenv("XDG_STATE_HOME"),
               *home = getenv("HOME");
    const char *slash = name[0] ? "/" : "";
    int length = 0;
    path[0] = '\0';
    if (own)
        length = own[0] ? snprintf(path, size, "%s%s%s", own, slash, name) : 0;
    else if (state &&
             state[0] ==
                 '/') /* a relative one is to be ignored: XDG Base Directory Specification */
        length = snprintf(path, size, "%s/medley%s%s", state, slash, name);
    else if (home && home[0])
        length = snprintf(path, size, "%s/.local/state/medley%s%s", home, slash, name);
    if (length > 0 && (size_t)length < size)
        return true;
    path[0] = '\0';
    return false;
}

bool state_folder(char *path, size_t size)
{
    return state_folder_file("", path, size);
}
