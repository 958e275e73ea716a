// Package cluster makes members agree: it orders opaque commands by raft,
// hands them to a machine and brings the outcomes back to the callers. It is a
// seam, not an API: only package conclave uses it.
//
// A command's way through the files: ask.go takes it, loop.go carries it to the
// core (cluster/core), which decides, and its outcome leads back to the caller.
package cluster

import (
	"errors"

	"github.com/conclave-go/conclave/cluster/core"
)

// Machine is the replicated state machine, and Call a command on its way: what
// the core asks of who uses a member.
type (
	Machine = core.Machine
	Call    = core.Call
)

// ErrStopped is what calls get when the member stops under them.
var ErrStopped = errors.New("the member has stopped")

// What the core refuses, for who uses a member.
var (
	ErrForgotten   = core.ErrForgotten
	ErrBusy        = core.ErrBusy
	ErrCorrupt     = core.ErrCorrupt
	ErrNotLeader   = core.ErrNotLeader
	ErrNoSuccessor = core.ErrNoSuccessor
)
