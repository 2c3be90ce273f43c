"""What a run needs of the computer: files, memory, devices, processes, bars."""
