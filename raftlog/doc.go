// Package raftlog stores one member's Raft log, durably before it acknowledges
// an append, together with the state machine's checkpoint. The logs of several groups
// share a store, and what they submit at the same time a batch with one sync. It is a seam, not an
// API.
//
// A Log has two halves that share no variable. The write state belongs to the
// storage goroutine: Write runs operations there, many in one batch of the
// database with at most one sync. The in-memory storage belongs to the loop: it
// implements raft.Storage and receives an operation through Wrote after Write
// has returned. Raft therefore reads an entry only once it is durable, and the
// loop never blocks on the disk.
//
// The log, the checkpoint and the applied index share one database and its WAL,
// which makes writes durable in the order in which they were issued: a write
// without a sync is durable with the next sync, and a truncation never survives
// a power loss that the checkpoint it relies on does not survive.
//
// Open detects damage. A checksum chain covers every byte of the log, Pebble's
// checksums cover the state, and the watermark counts synced writes. Open does
// not detect
//   - the loss of unsynced writes: these change the checkpoint only, and are
//     repeated from the log;
//   - the loss of the WAL's tail together with up to 63 raises of the watermark,
//     which takes a power loss on a disk that also loses acknowledged syncs; even
//     then it detects the loss of terms, votes and local records;
//   - an older copy of the whole directory. The other members detect it by its
//     boot counter.
package raftlog
