"""Routes to near PEs, whose memory is mapped here: one for each kind of memory."""
