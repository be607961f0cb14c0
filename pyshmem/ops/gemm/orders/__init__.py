"""In which order programs make the tiles of a product: which tile comes when, and which tiles several programs share."""
