"""The command line: one small file a command; each is one library call and its printing."""
