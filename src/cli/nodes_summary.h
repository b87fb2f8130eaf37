/* `medley nodes --summary`: each machine's load, and what all devices are together. */
#pragma once

int nodes_summary_run(void); /* an exit status */
