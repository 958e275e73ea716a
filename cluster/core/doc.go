// Package core is what decides in a member: raft in front of a machine, as one
// type that turns events into effects. It has no goroutine, no clock and no
// randomness of its own and does no I/O, so that the loop of package cluster and
// the simulator of internal/sim run the same code. It is a seam, not an API: only
// these two use it.
//
// Events (core.go) are messages, submissions, calls of this process, ticks, and a
// disk that has written. What they lead to comes from raft (ready.go) and leaves
// as Effects (effects.go), of which writes go to the disk one batch at a time
// (disk.go), and only what a batch has made durable is acknowledged.
package core
