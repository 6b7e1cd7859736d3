"""The program: the window and the commands. The only room that knows both engine and widgets."""
