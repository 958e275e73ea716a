// Package conclaveleader runs leader election code that was written for Kubernetes
// (k8s.io/client-go/tools/leaderelection) on a conclave group, without an API server.
//
//	lock := conclaveleader.New(node, "controller", resourcelock.ResourceLockConfig{Identity: id})
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, ...})
//
// A [Lock] keeps the record of the election in a key of the group, in place of a Lease, and
// replaces it by compare-and-swap on its modify index, in place of a resource version.
// Everything else is client-go's: candidates poll each RetryPeriod, and one of them takes over
// once it has seen no change of the record for LeaseDuration.
//
// What client-go does not promise, and what there is for it:
//
//   - That one process at most acts as the leader. A leader that was paused acts beside the
//     next one. client-go has no fencing token; [Lock.Fence] returns one, which also compares the
//     clock with the lease: send it to the resource, which checks it, for example with a
//     [conclave.Guard] or [conclave.KV.PutFenced].
//   - Order among candidates, and a takeover at once. Use [conclave.Election] for both where the code
//     need not be client-go's: it queues, grants without polling, and detects the death of a process.
//
// RenewDeadline and RetryPeriod together must be less than LeaseDuration, less 1 %, as in Kubernetes' own
// components (10 s, 2 s and 15 s). Then the leader's context is cancelled before another candidate
// takes over, also with ReleaseOnCancel: calls of a leader end with its lease.
//
// LeaseDuration counts in whole seconds, as everywhere in client-go. Each renewal is a write to the
// group's log; with an Election the renewals of all sessions of a node share one. Identities
// have to be unique: a candidate takes a record with its own identity for its own leadership. Coordinated
// leader election, for which the API server has a controller, is not supported.
//
// The package is a module of its own: programs without it link no client-go.
package conclaveleader
