package cluster

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

const (
	// admitTimeout bounds an admission, which needs a quorum.
	admitTimeout = 3 * time.Second
	// maxMembersSent bounds the members in an answer, whose frame is limited.
	maxMembersSent = 200
)

// admitNewcomer answers a process that asks for its admission, and has proved the key.
func (m *Member) admitNewcomer(sender *wire.GossipMeta, ephemeral bool) *wire.FormReply {
	reply := &wire.FormReply{Member: m.identity.Member, Candidate: m.meta()}
	if !m.admitting.TryLock() {
		reply.Refusal = "it admits another member: ask again"
		return reply
	}
	defer m.admitting.Unlock()
	ctx, cancel := context.WithTimeout(m.lifetime, admitTimeout)
	defer cancel()
	index, err := m.admitMember(ctx, sender, ephemeral)
	if err != nil {
		reply.Refusal = err.Error()
		return reply
	}
	// Its connections are refused until it is in the configuration.
	_ = m.awaitRemoval(ctx, func() bool { return m.isMember(sender.GetMember()) })
	reply.Admission = &wire.Admission{
		Cluster: m.identity.Get().GetCluster(), Members: m.membersOf(m.replica.Status().Conf), Endorsements: m.identity.Endorse(sender.GetKey(), index),
	}
	return reply
}

// admitMember submits the admission, and returns its index in the log.
func (m *Member) admitMember(ctx context.Context, sender *wire.GossipMeta, ephemeral bool) (index uint64, err error) {
	s := m.replica.Status()
	if m.identity.Cluster().IsZero() || s == nil || !s.Registered {
		return 0, errors.New("it belongs to no group yet, or has just started")
	}
	reply, err := m.replica.Execute(ctx, m.cfg.Commands.AdmitMember(&wire.AdmitMember{
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
	m.log.Info("member admitted", "member", wire.MemberID(sender.GetMember()), "name", sender.GetName(), "addr", sender.GetAdvertise())
	return reply.GetIndex(), nil
}

// membersOf returns the members of a configuration with their latest known addresses.
func (m *Member) membersOf(conf *raftpb.ConfState) (members []*wire.Founder) {
	ids := core.MembersOf(conf)
	members = append(members, wire.FounderOf(m.meta()))
	for _, p := range m.roster.Snapshot().Peers {
		if p.GetMember() != m.identity.Member && slices.Contains(ids, p.GetMember()) && len(members) < maxMembersSent {
			members = append(members, &wire.Founder{
				Member: p.GetMember(), Name: p.GetName(), Advertise: p.GetAdvertise(), Key: p.GetKey(),
			})
		}
	}
	return members
}

// noteMembers records the keys of members that joined, and the addresses of those of which
// none is known.
func (m *Member) noteMembers(records []fact.MemberRecord) {
	known := m.roster.Snapshot().Peers
	for _, r := range records {
		i := slices.IndexFunc(known, func(p *wire.Peer) bool { return p.GetMember() == r.ID })
		if r.ID == m.identity.Member || len(r.Key) != ed25519.PublicKeySize || i >= 0 && len(known[i].GetKey()) > 0 {
			continue
		}
		f := &wire.Founder{Member: r.ID, Name: r.Name, Advertise: r.Advertise, Key: r.Key}
		if i >= 0 {
			f.Name, f.Advertise = known[i].GetName(), known[i].GetAdvertise()
		}
		m.roster.SetFounder(f)
	}
}
