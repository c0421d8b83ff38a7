"""A simulator of power failures: it checks every state in which a crash may leave the files of a run.

``recorder.c`` is preloaded into a program and records what the program does to the files below one folder.
``disk.py`` plays the record back. ``crashes.py`` stops it after each operation and makes the states that may
be on the disk if the power fails there. ``examination.py`` writes each of them into a folder and asks a
subject to judge it: ``collection_subject.py``, ``index_subject.py`` and ``model_subject.py`` know what was
acknowledged by then. The programs are killed now and then, too, and go on with what they find.

What is assumed of the disk:

- Data and length of a file are safe after ``fsync`` or ``fdatasync`` of that file. Before, each write may be
  there, not there, or torn at any byte; later writes may be there without earlier ones. The length may be
  any that the file has had since it was synced; what was not written reads as zeros.
- A name (a file or folder created, renamed or removed) is safe after ``fsync`` of the folder that holds it,
  and not after that of the file. Before, any subset of the changes may be there, also across folders: the
  order that the journals of ext4 or XFS happen to keep is not relied upon.
- A rename is atomic: the old or the new name, never both or none. If it moves something from one folder to
  another, syncing one of the two is enough.
- The root folder of the run is there. A name whose parent is lost is lost with it.
- What is synced stays as it is: no bit rot, and no write of one file changes another.
- SQLite's ``-shm`` file is mapped into memory and means nothing after a crash: it is missing or garbage.

- After an ``fsync`` of a file that failed, the program still sees the changes, but the disk may not have
  them, and a later ``fsync`` does not write them: Linux forgets them. Names may still be synced later.

``sync``, ``syncfs``, ``sync_file_range`` and ``msync`` count for nothing. Not simulated are disks that lie
about ``fsync``. Symbolic links and swapping two names end a recording with an error.

``failing.py`` lets the n-th open, write, sync, rename, removal, truncation or ``mkdir`` of a step fail
(``faults.py``), for every n: the error is clear, nothing is lost, and the same step works afterwards, even if
the power fails then. ``recovery.py`` lets the power fail a second time while a program recovers.

No write goes unnoticed: whenever a file is closed, renamed or removed, its length and checksum are recorded
too, and must be those of the file played back. At the end, the whole folder must be.
"""
