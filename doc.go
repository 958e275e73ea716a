// Package conclave is an embeddable library for clustered locks. An application links
// it and opens one [Node] per process. The nodes form a group, which replicates one
// state machine by Raft and keeps it on disk. There is no server to run.
//
//	node, err := conclave.Open(ctx, &conclave.Config{
//		Dir:    "/var/lib/app/conclave",
//		Bind:   "127.0.0.1:7001",
//		Join:   []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"},
//		Expect: 3,
//	})
//	if err != nil {
//		return err
//	}
//	defer node.Close(context.Background())
//
//	lock := node.FencedLock("invoices")
//	fence, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//
// A [FencedLock] is held by one handle at a time in the whole group. Each grant comes
// with a fencing token, a [Fence] that is larger than every fence that the group has granted
// before (for a lock that lingers, see [Linger], than every fence of that lock). A lock
// cannot stop a paused holder from acting late, so the resource that the lock protects
// must check the fence, for example with a [Guard].
//
// # Types
//
//   - [Node] is this process's member of the group; [Open] returns one. A [Client] is a
//     connection to a member, for a process that is none; [Dial] returns one. Both have the
//     methods of a [Group].
//   - [FencedLock] is held by one handle at a time.
//   - [Semaphore] has a limited number of permits; a [Permit] is one acquisition of
//     some of them.
//   - [Election] has one [Leader] at a time, with a value that every member can see.
//   - [Job] is work that runs once for each key or period, and of each key in one process at
//     a time.
//   - [Shards] are parts of a work, each of which one process does at a time; the group
//     divides them among the processes.
//   - [KV] is a small key/value store. An [Entry] is a key with its value, an [Op] an
//     operation of a [KV.Txn], an [Event] a change that [KV.Watch] yields.
//   - [Session] is the lease under which all of these are held. It expires when it was
//     not renewed for its TTL; it can also be closed by force, or end with a [Check]
//     that becomes critical.
//   - [Fence] is the fencing token of a grant. [Guard] refuses stale ones. A [Sequencer]
//     is to a locked key what a Fence is to a lock.
//
// A node has a session of its own, under which the handles of [Group.FencedLock],
// [Group.Semaphore] and [Group.Election] acquire. [Group.NewSession] opens others, with a
// lock-delay, with checks, or with [NoTTL], to outlive the process.
//
// # Outcomes
//
// A call has one of three outcomes. It returned nil: it took effect, at one point
// between call and return. It returned an error: it had no effect. Or it returned an
// error that wraps [ErrUnknown]: the wait ended, as a rule with the context, while the
// request was under way, and it may take effect. Calls that acquire, like
// [FencedLock.Lock], [Semaphore.Acquire] or a first [Election.Campaign], have only the
// first two: a request that may have been queued is withdrawn in the background.
//
// Every error is an [*Error]. Test for its cause with [errors.Is]. If a context was the
// reason, errors.Is finds its error as well. [ErrBusy] and [ErrUnavailable] are worth a
// retry.
package conclave
