/* Python's waits for words in CPU memory (base/spin.h), and tests of them. Waits release the GIL. */
#pragma once
#include "../base/spin.h"
#include "conversions.h"

INTERNAL int handle_signals(spin_t *s);
INTERNAL void spin_without_gil(spin_t *s, PyThreadState **released);
INTERNAL PyObject *spin_error(const spin_t *s);
