// Package raftlog is one member's log, durable before it says so. It is a seam,
// not an API.
//
// A Log has two halves that never share a variable. The disk half belongs to
// the storage goroutine: Write carries operations out there, many in one batch
// of the database with at most one sync. The memory half belongs to the loop:
// it implements raft.Storage and learns of an operation by Wrote, after Write
// has returned. So raft sees an entry only when it is durable, and the loop
// never waits for the disk.
//
// The log, the state that applying it has led to, and the index of that state
// are in one database with one write-ahead log. Its order is their order: what
// is written without a sync is durable with the next one, and a truncation
// never survives the state that made it possible.
package raftlog
