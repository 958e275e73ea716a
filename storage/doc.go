// Package storage keeps a member's bytes on disk: one Pebble database behind a
// guard that turns the first failed write into the end of the store, and never
// into the end of the process. It is a seam, not an API.
//
// Pebble was made for servers that own their process. At a failed write it
// exits, loops, panics on a goroutine of its own or, told not to exit, goes on
// and acknowledges what it lost. So it is not allowed to see one. The guard
// wraps the file system, records the first failed mutation, and parks the
// goroutine that met it and every later one that would touch a file. All calls
// that write run on one goroutine of the store, so whoever waits for it waits
// for the guard as well, and nobody hangs with it. When a failed store is
// closed, what is parked wakes on files that take everything and keep nothing;
// there Pebble comes to an orderly end, and nothing of it is left.
package storage
