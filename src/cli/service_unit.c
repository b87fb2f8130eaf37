#include "cli/service_unit.h"

#include <assert.h>
#include <string.h>

/* What a service of the machine does not need is taken from it (systemd.exec(5)). It keeps the
 * network, the GPUs of every vendor, and memory that is written and then executed, which shader
 * compilers need. */
static const char machine_service[] =
    "DynamicUser=yes\n"
    "StateDirectory=medley\n"
    "CacheDirectory=medley\n"
    "Environment=MEDLEY_STATE_DIR=%S/private/medley XDG_CACHE_HOME=%C/private/medley\n"
    "ImportCredential=medley.*\n"
    "NoNewPrivileges=yes\n"
    "CapabilityBoundingSet=\n"
    "AmbientCapabilities=\n"
    "ProtectSystem=strict\n"
    "ProtectHome=read-only\n"
    "PrivateTmp=yes\n"
    "PrivateMounts=yes\n"
    "ProtectClock=yes\n"
    "ProtectHostname=yes\n"
    "ProtectControlGroups=yes\n"
    "ProtectKernelLogs=yes\n"
    "ProtectKernelModules=yes\n"
    "ProtectKernelTunables=yes\n"
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK\n"
    "RestrictNamespaces=yes\n"
    "RestrictRealtime=yes\n"
    "RestrictSUIDSGID=yes\n"
    "RemoveIPC=yes\n"
    "LockPersonality=yes\n"
    "SystemCallArchitectures=native\n"
    "SystemCallFilter=@system-service @sandbox\n"
    "SystemCallErrorNumber=EPERM\n"
    "UMask=0077\n"
    "DevicePolicy=closed\n"
    "DeviceAllow=char-drm rw\n"
    "DeviceAllow=/dev/kfd rw\n"
    "DeviceAllow=char-nvidia-frontend rw\n"
    "DeviceAllow=char-nvidia rw\n"
    "DeviceAllow=char-nvidia-uvm rw\n"
    "DeviceAllow=char-nvidia-caps rw\n"
    "DeviceAllow=/dev/dxg rw\n";

/* In double quotes, with what systemd would replace written twice (systemd.service(5), "Command
 * lines"). */
static bool unit_word(struct buffer *out, const char *word)
{
    buffer_text(out, "\"");
    for (const char *at = word; *at; at++) {
        if ((unsigned char)*at < ' ')
            return false;
        if (*at == '"' || *at == '\\')
            buffer_text(out, "\\");
        if (*at == '%' || *at == '$')
            buffer_append(out, at, 1);
        buffer_append(out, at, 1);
    }
    buffer_text(out, "\"");
    return true;
}

static enum error_code unit_command(const struct service_unit *unit, struct buffer *out,
                                    struct error *err)
{
    buffer_text(out, "ExecStart=");
    if (!unit_word(out, unit->program))
        return error_set(err, ERROR_INVALID, "the path of this program has a line feed");
    buffer_text(out, " up");
    for (size_t i = 0; i < unit->n_words; i++) {
        buffer_text(out, " ");
        if (!unit_word(out, unit->words[i]))
            return error_set(err, ERROR_INVALID, "option %zu has a character that no unit can have",
                             i + 1);
    }
    buffer_text(out, "\n");
    return ERROR_NONE;
}

static enum error_code unit_ended(const struct buffer *out, struct error *err)
{
    return out->failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for the unit")
                       : ERROR_NONE;
}

enum error_code service_unit_text(const struct service_unit *unit, struct buffer *out,
                                  struct error *err)
{
    buffer_text(out, "# Written by `medley service`.\n"
                     "[Unit]\n"
                     "Description=Medley: this machine's part of a computer for language models\n"
                     "Documentation=man:medley(1)\n");
    if (!unit->for_user)
        buffer_text(out, "Wants=network-online.target\nAfter=network-online.target\n");
    if (unit->listen)
        buffer_text(out, "Requires=medley.socket\nAfter=medley.socket\n");
    buffer_text(out, "\n[Service]\nType=notify-reload\n");
    const enum error_code code = unit_command(unit, out, err);
    if (code)
        return code;
    buffer_text(out, "Restart=on-failure\n"
                     "RestartSec=2\n"
                     "WatchdogSec=60\n"
                     "TimeoutStartSec=300\n"
                     "TimeoutStopSec=60\n"
                     "KillMode=mixed\n" /* the node ends its processes after its replies */
                     "OOMPolicy=continue\n"
                     "LimitNOFILE=65536\n");
    if (!unit->for_user)
        buffer_text(out, machine_service);
    if (!unit->for_user && unit->groups[0])
        buffer_printf(out, "SupplementaryGroups=%s\n", unit->groups);
    buffer_printf(out, "\n[Install]\nWantedBy=%s\n",
                  unit->for_user ? "default.target" : "multi-user.target");
    return unit_ended(out, err);
}

enum error_code service_socket_text(const struct service_unit *unit, struct buffer *out,
                                    struct error *err)
{
    assert(unit->listen);
    buffer_printf(out,
                  "# Written by `medley service`.\n"
                  "[Unit]\n"
                  "Description=Medley's API\n"
                  "\n[Socket]\n"
                  "ListenStream=%s\n"
                  "BindIPv6Only=both\n"
                  "\n[Install]\n"
                  "WantedBy=sockets.target\n",
                  unit->listen);
    return unit_ended(out, err);
}
