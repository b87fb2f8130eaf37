#include "cli/session_sight.h"

#include "base/log.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "model/projector.h"
#include "plan/selection.h"

#include <stdio.h>
#include <string.h>

/* On the first of the devices, as they are tried for layers; where there is no room, on the CPU. */
static enum error_code session_sight_on_device(struct session *session, const char *path,
                                               const struct session_flags *flags, struct error *err)
{
    struct selection selection;
    const bool as_given = flags->sim_file || flags->split;
    enum error_code code = selection_make(session->gpu, flags->devices, as_given, &selection, err);
    if (!code)
        code = sight_open(path, session->model, selection.devices[0], gpu_find(session->gpu, "cpu"),
                          &session->sight, err);
    if (!code)
        fprintf(stderr, "pictures: by %s (%s), on %s\n", path,
                projector_kind_name(sight_projector(session->sight)),
                device_info(sight_device(session->sight))->id);
    return code;
}

enum error_code session_open_sight(struct session *session, const char *model_path,
                                   const struct session_flags *flags, struct error *err)
{
    char found[PATH_MAX];
    struct error why;
    if (!flags->takes_pictures || (flags->projector && strcmp(flags->projector, "none") == 0))
        return ERROR_NONE;
    if (flags->projector) {
        const enum error_code code = session_sight_on_device(session, flags->projector, flags, err);
        return code ? error_wrap(err, "--projector") : ERROR_NONE;
    }
    if (sight_find(model_path, session->model, found) &&
        session_sight_on_device(session, found, flags, &why))
        log_line(LOG_WARN, "pictures", "not by %s: %s", found, why.text);
    return ERROR_NONE;
}
