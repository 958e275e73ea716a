// Package cluster runs one member of a group: it orders opaque commands by raft,
// applies them to a machine and returns the outcomes to the callers. It is a seam,
// not an API: only package conclave uses it.
//
// submit.go takes commands and reads; loop.go passes events to the core (cluster/core),
// and driver.go carries out its effects. The table of the members (cluster/roster) is updated
// by peers.go with what gossip shows (cluster/gossip), and read by failure_detector.go. A new group is
// formed by cluster/forming, member_removal.go removes a member, snapshots.go streams snapshots.
package cluster

import (
	"errors"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Machine is the replicated state machine, and Call a pending command. The user of a
// member implements both.
type (
	Machine = core.Machine
	Call    = core.Call
)

// Effects, Forward and Notification are the types that Seams.Effects may change.
type (
	Effects      = core.Effects
	Forward      = core.Forward
	Notification = core.Notification
)

// Commands encodes the commands that the cluster itself submits.
type Commands interface {
	// RemoveMember removes a member, 0: the one that submits it. voters are the voters
	// that the submitter knows of.
	RemoveMember(member uint64, voters []uint64) []byte
	AdmitMember(*wire.AdmitMember) []byte
	ReportLiveness(r wire.LivenessReport) []byte
	// RaiseLevel raises the feature level; see Member.RaiseLevel.
	RaiseLevel(level uint32, members []uint64, force bool) []byte
	// RenewClients renews clients that are connected to this member.
	RenewClients([]wire.ID) []byte
}

var (
	// ErrStopped: the member has stopped.
	ErrStopped = errors.New("the member has stopped")
	// ErrNoLeader: no leader was known in time.
	ErrNoLeader = errors.New("no leader is known")
	// ErrLevel: the group refuses a feature level.
	ErrLevel = errors.New("the group refuses the feature level")
)

// Sentinel errors of the core.
var (
	ErrUnregistered = core.ErrUnregistered
	ErrBusy         = core.ErrBusy
	ErrCorrupt      = core.ErrCorrupt
	ErrForgot       = core.ErrForgot

	ErrUpgradeRequired  = core.ErrUpgradeRequired
	ErrNotLeader        = core.ErrNotLeader
	ErrNoSuccessor      = core.ErrNoSuccessor
	ErrTooManyTransfers = core.ErrTooManyTransfers
)
