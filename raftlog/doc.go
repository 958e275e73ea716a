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
//
// Open notices damage: every byte of the log is in a chain of checksums, every
// byte of the state in one of Pebble's, and the watermark tells how many synced
// writes there have been. It does not notice
//   - the loss of writes that were not synced: they changed the state only, and
//     are made again from the log;
//   - the loss of the end of the write-ahead log together with up to 63 rises of
//     the watermark, that is, a power cut on a disk that also loses what it
//     reported as durable; terms, votes and local records are noticed even then;
//   - an older copy of the whole directory. That is for the boot counter, which
//     the other members remember.
package raftlog
