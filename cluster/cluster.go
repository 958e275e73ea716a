// Package cluster runs one member of a group: it orders opaque commands by raft,
// applies them to a machine and returns the outcomes to the callers. It is a seam, not
// an API: only package conclave uses it.
//
// Where things happen: ask.go takes commands and reads; loop.go brings events to the
// core (cluster/core), which decides, and driver.go carries the effects out. roster.go is
// what the member knows of the others, fed by peers.go and gossip.go and read by
// detector.go, the failure detector. forming.go forms a new group, removal.go removes a
// member.
package cluster

import (
	"errors"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Machine is the replicated state machine, and Call a pending command: what the user
// of a member implements.
type (
	Machine = core.Machine
	Call    = core.Call
)

// Effects, Forward and Notification are what Seams.Effects changes.
type (
	Effects      = core.Effects
	Forward      = core.Forward
	Notification = core.Notification
)

// Commands encodes the commands that the cluster itself submits.
type Commands interface {
	// RemoveMember removes the member that submits it. voters are the voters that
	// the member knows of.
	RemoveMember(voters []uint64) []byte
	ReportLiveness(r wire.LivenessReport) []byte
}

var (
	// ErrStopped: the member has stopped.
	ErrStopped = errors.New("the member has stopped")
	// ErrNoLeader: no leader was known in time.
	ErrNoLeader = errors.New("no leader is known")
)

// Sentinel errors of the core.
var (
	ErrUnregistered = core.ErrUnregistered
	ErrBusy         = core.ErrBusy
	ErrCorrupt      = core.ErrCorrupt
	ErrNotLeader    = core.ErrNotLeader
	ErrNoSuccessor  = core.ErrNoSuccessor
)
