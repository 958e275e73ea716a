package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
)

const (
	// admitTimeout bounds an admission, which needs a quorum.
	admitTimeout = 3 * time.Second
	// maxMembersSent bounds the members in an answer, whose frame is limited.
	maxMembersSent = 200
)

// newcomers admits processes as members, one at a time.
type newcomers struct {
	identity *identity.Identity
	meta     func() *wire.GossipMeta // of this member
	group    group
	roster   *roster.Roster
	// awaitMembership blocks until the condition holds after a membership change, or ctx is done.
	awaitMembership func(ctx context.Context, met func() bool) error
	commands        Commands
	log             *slog.Logger
	lifetime        context.Context

	admitting sync.Mutex // held while one is admitted
}

// admit answers a process that asks for its admission, and has proved the key.
func (n *newcomers) admit(sender *wire.GossipMeta, ephemeral bool) *wire.FormReply {
	reply := &wire.FormReply{Member: n.identity.Member, Candidate: n.meta()}
	if !n.admitting.TryLock() {
		reply.Refusal = "it admits another member: ask again"
		return reply
	}
	defer n.admitting.Unlock()
	ctx, cancel := context.WithTimeout(n.lifetime, admitTimeout)
	defer cancel()
	index, err := n.admitMember(ctx, sender, ephemeral)
	if err != nil {
		reply.Refusal = err.Error()
		return reply
	}
	// Its connections are refused until it is in the configuration.
	_ = n.awaitMembership(ctx, func() bool { return n.roster.IsMember(sender.GetMember()) })
	reply.Admission = &wire.Admission{
		Cluster: n.identity.Get().GetCluster(), Members: membersOf(n.group.Status().Conf, n.meta(), n.roster.Snapshot()), Endorsements: n.identity.Endorse(sender.GetKey(), index),
	}
	return reply
}

// admitMember submits the admission, and returns its index in the log.
func (n *newcomers) admitMember(ctx context.Context, sender *wire.GossipMeta, ephemeral bool) (index uint64, err error) {
	s := n.group.Status()
	if n.identity.Cluster().IsZero() || s == nil || !s.Registered {
		return 0, errors.New("it belongs to no group yet, or has just started")
	}
	reply, err := n.group.Execute(ctx, n.commands.AdmitMember(&wire.AdmitMember{
		Member: sender.GetMember(), Key: sender.GetKey(), Name: sender.GetName(), Advertise: sender.GetAdvertise(), Ephemeral: ephemeral,
	}))
	switch {
	case ctx.Err() != nil:
		return 0, errors.New("its group has no quorum now")
	case err != nil:
		return 0, err
	case reply.GetCode() == wire.Code_REMOVED:
		return 0, fmt.Errorf("the group has removed member %v: start it with an empty directory, as a new member", wire.MemberID(sender.GetMember()))
	case reply.GetCode() != wire.Code_OK:
		return 0, errors.New(reply.GetDetail())
	}
	n.log.Info("member admitted", "member", wire.MemberID(sender.GetMember()), "name", sender.GetName(), "addr", sender.GetAdvertise())
	return reply.GetIndex(), nil
}

// membersOf returns the members of a configuration with their latest known addresses: self, and those that the roster
// shows.
func membersOf(conf *raftpb.ConfState, self *wire.GossipMeta, seen *roster.Snapshot) (members []*wire.Founder) {
	ids := core.MembersOf(conf)
	members = append(members, wire.FounderOf(self))
	for _, p := range seen.Peers {
		if p.GetMember() != self.GetMember() && slices.Contains(ids, p.GetMember()) && len(members) < maxMembersSent {
			members = append(members, &wire.Founder{
				Member: p.GetMember(), Name: p.GetName(), Advertise: p.GetAdvertise(), Key: p.GetKey(),
			})
		}
	}
	return members
}
