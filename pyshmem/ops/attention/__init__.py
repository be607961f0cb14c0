"""Attention over sequences that PEs share: prefill is ops.attention, decode is ops.flash_decode."""
