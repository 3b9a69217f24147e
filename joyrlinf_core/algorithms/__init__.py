"""Pure tensor functions: masks, advantages, filters, losses."""
