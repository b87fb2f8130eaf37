#include "cli/top_terminal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct {
    int wake[2]; /* a handler may run on any thread, so what it has to say goes through a pipe */
    struct termios before;
    bool entered;
    bool keys; /* stdin is a terminal that answers */
} terminal;

static volatile sig_atomic_t ended, stopped;

static void top_terminal_on_signal(int number)
{
    const int saved = errno;
    if (number == SIGTSTP)
        stopped = 1;
    else if (number != SIGWINCH)
        ended = 1;
    if (write(terminal.wake[1], "", 1) < 0) { /* full: it will be read */
    }
    errno = saved;
}

bool terminal_begin(void)
{
    if (pipe(terminal.wake) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(terminal.wake[i], F_SETFD, FD_CLOEXEC);
        fcntl(terminal.wake[i], F_SETFL, O_NONBLOCK);
    }
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    struct sigaction action = {.sa_handler = top_terminal_on_signal};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    return true;
}

static void set_stop_handler(void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler};
    sigaction(SIGTSTP, &action, NULL);
}

void terminal_enter(void)
{
    terminal.keys = tcgetattr(STDIN_FILENO, &terminal.before) == 0;
    if (terminal.keys) {
        struct termios raw = terminal.before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l\033[2J", stdout); /* the other screen, no cursor */
    set_stop_handler(top_terminal_on_signal);
    terminal.entered = true;
}

void terminal_leave(void)
{
    if (!terminal.entered)
        return;
    terminal.entered = false;
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (terminal.keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
    set_stop_handler(SIG_DFL);
}

struct terminal_size terminal_size(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        size.ws_col = 0;
    return (struct terminal_size){size.ws_col ? size.ws_col : 80,
                                  size.ws_col && size.ws_row ? size.ws_row : 24};
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* True when somebody pressed q. */
static bool read_keys(void)
{
    char keys[16];
    const ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0 && errno != EINTR && errno != EAGAIN)
        terminal.keys = false; /* it has hung up: no reason to ask again and again */
    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == 'q' || keys[i] == 'Q')
            return true;
    }
    return false;
}

static enum terminal_event read_signals(void)
{
    char bytes[16];
    while (read(terminal.wake[0], bytes, sizeof bytes) > 0) {
    }
    if (ended)
        return TERMINAL_END;
    if (stopped) {
        stopped = 0;
        terminal_leave();
        raise(SIGTSTP); /* here it stands until somebody continues it */
        terminal_enter();
    }
    return TERMINAL_REDRAW;
}

enum terminal_event terminal_wait(uint32_t ms)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)ms * 1000000;
    for (uint64_t now_ns; (now_ns = clock_now_ns()) < until_ns;) {
        struct pollfd inputs[] = {{.fd = terminal.wake[0], .events = POLLIN},
                                  {.fd = STDIN_FILENO, .events = POLLIN}};
        const bool keys = terminal.entered && terminal.keys;
        if (poll(inputs, keys ? 2 : 1, (int)((until_ns - now_ns + 999999) / 1000000)) <= 0)
            continue;
        if (inputs[0].revents)
            return read_signals();
        if (keys && inputs[1].revents && read_keys())
            return TERMINAL_END;
    }
    return ended ? TERMINAL_END : TERMINAL_TIME;
}
