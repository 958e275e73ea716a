// Package cluster runs one member of a group: it orders opaque commands by raft,
// applies them to a machine and returns the outcomes to the callers. It is a seam,
// not an API: only package conclave uses it.
//
// A process has one member: its identity, its directory, its port, the connections of clients and what it knows of
// the others. The group's state is in its replica (cluster/replica, replicas.go), which sees the member as an
// interface. The table of the members (cluster/roster) is updated with what gossip shows (cluster/gossip) and what
// connections show (connections.go), by membership.go with membership changes, and read by failure_detector.go. A new
// group is formed by cluster/forming, newcomers.go admits a member, and member_removal.go removes one.
//
// peers.go and replicas.go put the parts of a member together. A part takes the others as functions and small
// interfaces, and never the member.
package cluster

import (
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
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
	CreateGroup(name string, voters, standbys []uint64) []byte
	DropGroup(number uint32, fences uint64) []byte
	FollowMembers(*wire.FollowMembers) []byte
	SealGroup(force bool) []byte
	ReportLiveness(r fact.LivenessReport) []byte
	ReportProcess(r fact.CrashReport) []byte
	replica.Commands
	// RenewClients renews clients that are connected to this member.
	RenewClients([]wire.ID) []byte
}

// Sentinel errors of the replica and of its core.
var (
	ErrStopped     = replica.ErrStopped
	ErrNoLeader    = replica.ErrNoLeader
	ErrLevel       = replica.ErrLevel
	ErrUnconfirmed = replica.ErrUnconfirmed

	ErrCorrupt = core.ErrCorrupt
	ErrForgot  = core.ErrForgot

	ErrUpgradeRequired  = core.ErrUpgradeRequired
	ErrNotLeader        = core.ErrNotLeader
	ErrNoSuccessor      = core.ErrNoSuccessor
	ErrTooManyTransfers = core.ErrTooManyTransfers
)
