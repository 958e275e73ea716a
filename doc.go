// Package conclave is an embeddable library for clustered locks. An application
// links it and opens one [Node] per process; the nodes form a group that agrees
// by Raft and keeps what was agreed on disk. There is no server to run.
//
//	node, err := conclave.Open(ctx, &conclave.Config{
//		Dir:    "/var/lib/app/conclave",
//		Bind:   "127.0.0.1:7000",
//		Join:   []string{"127.0.0.1:7001", "127.0.0.1:7002"},
//		Expect: 3,
//	})
//	if err != nil {
//		return err
//	}
//	defer node.Close(ctx)
//
//	lock := node.FencedLock("invoices")
//	fence, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//
// A [FencedLock] is held by one handle at a time in the whole group. Whoever is
// granted it gets a [Fence], a number larger than every fence given out before.
// A lock cannot stop a holder that was paused from acting late, so the resource
// that the lock protects has to check the fence; [Guard] is what it embeds.
//
// # Nouns
//
//   - [Node] is this process's member of the group; [Open] makes one.
//   - [FencedLock] is held by one handle at a time.
//   - [Semaphore] hands out a limited number of permits; a [Permit] is one
//     acquisition of some.
//   - [Election] has one leader at a time, with a value that everybody can see;
//     who leads is a [Leader].
//   - [KV] is a small store of keys. An [Entry] is a key with its value, an [Op]
//     is an operation of a [KV.Txn], an [Event] is a change that [KV.Watch] tells.
//   - [Session] is the lease by which all of it is held. It ends when its process
//     has been silent for the session's TTL, and earlier by force or when a [Check]
//     becomes critical.
//   - [Fence] is the number of a grant, [Guard] refuses those that are too late,
//     and a [Sequencer] does for a key that is locked what a Fence does for a lock.
//
// A node has a session of its own, by which [Node.FencedLock], [Node.Semaphore]
// and [Node.Election] hold what they hold. [Node.NewSession] makes others, with a
// lock-delay, with checks, or with [NoTTL], to outlive the process.
//
// # Outcomes
//
// A call ends in one of three ways. It returned nil: it took effect, at one
// point between call and return. It returned an error: it had no effect. Or it
// returned an error that wraps [ErrUnknown]: the context ended when the request
// was already under way, and it may take effect. What acquires, like
// [FencedLock.Lock], [Semaphore.Acquire] or a first [Election.Campaign], knows only
// the first two: what may have been queued for it is withdrawn in the background.
//
// Every error is an [*Error]. Test for its cause with [errors.Is]; where a
// context's end was the reason, that is a cause as well.
package conclave
