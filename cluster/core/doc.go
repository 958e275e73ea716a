// Package core is the deterministic part of a member: raft and the state machine, as
// one type that turns events into effects. It has no goroutine, clock or source of
// randomness and does no I/O, so that the loop of package cluster and the simulator of
// internal/sim run the same code. It is a seam, not an API: only these two use it.
//
// Events (core.go) are messages, submissions, calls of this process, ticks, and
// completed writes. They pass through raft (ready.go) and result in Effects
// (effects.go). Writes go to the disk one batch at a time (disk.go), and a message that
// depends on a write is sent when its batch is durable.
//
// What has state of its own is a type, which takes raft's node (raft_node.go) and what else
// it needs as values, and never the Core: calls, reads, elections, leadershipTransfers,
// reconciler, commitNotices, arbitration, checkpoints, truncation, snapshotSending,
// installation, proposals and attachedClients. Core embeds those whose methods are events.
package core
