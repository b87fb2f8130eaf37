/* The terminal of a command that shows something until it is ended: keys one by one, the other
 * screen, and signals that are seen between two pictures (the end, a stop with Ctrl-Z, another
 * size). One for the process, as signals are.
 *
 * While terminal_enter() holds, whatever ends the command must pass through terminal_leave(), so
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT only ask for the end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* From here on the signals above come through terminal_wait(). False: the system has no pipe
 * left. */
bool terminal_begin(void);

void terminal_enter(void);
void terminal_leave(void); /* nothing when it was not entered */

struct terminal_size {
    uint32_t columns, rows; /* at least 1; 80 × 24 where the terminal does not say */
};
struct terminal_size terminal_size(void);

enum terminal_event {
    TERMINAL_TIME,   /* it is over */
    TERMINAL_REDRAW, /* another size, or it was stopped meanwhile */
    TERMINAL_END,    /* a signal, or the key q */
};
enum terminal_event terminal_wait(uint32_t ms);
