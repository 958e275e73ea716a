// Package storage stores a member's data on disk: one Pebble database on a
// fail-stop file system, which turns the first failed write into the end of the
// store and never into the end of the process. It is a seam, not an API.
//
// Pebble is made for servers that own their process. On a failed write it
// exits, retries in a hot loop, panics on a goroutine of its own or, with a
// logger whose Fatalf returns, acknowledges writes that it has lost. Therefore
// it never sees one: the file system records the first failed mutation and
// parks the goroutine that issued it, together with every later goroutine that
// would modify a file.
//
// All writes run on one goroutine of the store, and its callers wait for the
// result or the failure, whichever comes first; a parked goroutine blocks no
// caller. Closing a failed store resumes the parked goroutines on files that
// discard all writes, and on new ones in memory, so that Pebble shuts down and
// leaks nothing.
package storage
