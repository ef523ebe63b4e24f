"""The compiled heart of the engine: fits, apply, and the placement of one pod, a gang or a whole stream."""
