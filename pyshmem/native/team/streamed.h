/* Calls on streams, whose kernels meet on the GPU. Their members compare them when they are enqueued, and wait for
 * nobody.
 *
 * Each member has the marks of its last calls in its area. A mark has the low bits of the call's number, and the
 * history of the words of all calls up to it. A member stores the mark of its call, and then looks at the marks of this
 * call on the others: the later of two members sees that the calls differ. If the other is so many calls ahead that the
 * mark is gone, their histories differ in the later calls too. */
#pragma once
#include "barrier.h"

INTERNAL int64_t streamed_differs(const team_t *t, uint64_t word);
