package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Joining an existing group. A process that belongs to no group and has found a member of
// one, on a connection that proves both keys, asks that member to admit it:
//
//	1. The member submits AdmitMember, which makes the newcomer, with its key and address,
//	   a member in the machine's state.
//	2. The leader's reconciler adds it to Raft's configuration as a standby.
//	3. The member answers with the cluster ID and the group's members. The newcomer stores
//	   these, and starts with an empty log and no configuration, so it neither votes nor
//	   campaigns. The leader sends it a snapshot.
//
// Admission is idempotent, so a crash or a lost answer only delays.
//
// A process that has found a group at an address in Config.Join never forms one: it records
// the cluster that it has seen before it asks for admission, and refuses every proposal from
// then on. Of a process that has come by itself it remembers that only while it answers: a
// stranger could keep the founders from forming a group permanently.

// ErrTwoGroups: addresses in Config.Join belong to different groups.
var ErrTwoGroups = errors.New("the addresses belong to members of different groups of this name: " +
	"remove those of one group from Config.Join")

const (
	// admitTimeout bounds an admission, which needs a quorum.
	admitTimeout = 3 * time.Second
	// maxMembersSent bounds the members in an answer, whose frame is limited.
	maxMembersSent = 200
)

// formedGroup returns the members of an existing group that the search has found; an error if
// they belong to several.
func (m *Member) formedGroup() (members []*wire.GossipMeta, err error) {
	for _, meta := range m.candidates.processes() {
		if len(meta.GetCluster()) == 0 {
			continue
		}
		if len(members) > 0 && !bytes.Equal(members[0].GetCluster(), meta.GetCluster()) {
			return nil, fmt.Errorf("%w: %s at %s, and %s at %s", ErrTwoGroups,
				members[0].GetName(), members[0].GetAdvertise(), meta.GetName(), meta.GetAdvertise())
		}
		members = append(members, meta)
	}
	return members, nil
}

// joinGroup asks the members of the group that the search has found for admission. It reports
// whether this member has been admitted.
func (m *Member) joinGroup(ctx context.Context) (joined bool, err error) {
	members, err := m.formedGroup()
	if err != nil || len(members) == 0 || m.accepted() != nil {
		return false, nil //nolint:nilerr // waitReason returns it
	}
	if m.candidates.isConfigured(members[0].GetMember()) {
		if err := m.noteSeen(members[0].GetCluster()); err != nil {
			return false, err
		}
	}
	for _, meta := range members {
		to := transport.Target{Addr: meta.GetAdvertise(), Member: meta.GetMember(), Advertised: true}
		reply, err := m.forming.send(ctx, to, &wire.FormRequest{Candidate: m.meta(), Admit: true, Ephemeral: m.cfg.Dir == ""})
		switch {
		case err != nil:
			m.noteNotAdmitted(founderOf(meta), err.Error())
		case reply.GetAdmission() == nil:
			m.noteNotAdmitted(founderOf(meta), reply.GetRefusal())
		case !bytes.Equal(reply.GetAdmission().GetCluster(), meta.GetCluster()):
			m.noteNotAdmitted(founderOf(meta), "it admits to another cluster than its own")
		default:
			m.noteNotAdmitted(nil, "")
			return true, m.admitted(reply.GetAdmission())
		}
	}
	return false, nil
}

// noteSeen records that this process has found a group, so that it never forms one.
func (m *Member) noteSeen(cluster []byte) error {
	m.forming.changing.Acquire()
	defer m.forming.changing.Release()
	if len(m.identity.Get().GetSeen()) > 0 {
		return nil
	}
	return m.identity.Save(func(r *wire.Identity) { r.Seen = cluster })
}

// admitted makes this member a member of the group that has admitted it.
func (m *Member) admitted(a *wire.Admission) error {
	m.forming.changing.Acquire()
	defer m.forming.changing.Release()
	if cluster, ok := wire.IDFrom(a.GetCluster()); !ok || cluster.IsZero() {
		return errors.New("a member of the group has sent an admission without a cluster")
	}
	if len(a.GetEndorsements()) > identity.MaxEndorsements || !identity.VerifyLinks(a.GetCluster(), a.GetEndorsements(), m.identity.Public()) {
		return errors.New("a member of the group has sent an admission with invalid endorsements")
	}
	for _, f := range a.GetMembers() {
		if f.GetMember() != m.identity.Member {
			m.roster.SetFounder(f) // synced with the identity
		}
	}
	if err := m.identity.Save(func(r *wire.Identity) {
		r.Cluster, r.Joined, r.Accepted, r.Refused = a.GetCluster(), true, nil, nil
		r.Endorsements = a.GetEndorsements()
	}); err != nil {
		return err
	}
	m.log.Info("admitted to the group", "cluster", m.identity.Cluster(), "members", len(a.GetMembers()))
	return nil
}

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
		Cluster: m.identity.Get().GetCluster(), Members: m.membersOf(m.status.Load().conf), Endorsements: m.identity.Endorse(sender.GetKey(), index),
	}
	return reply
}

// admitMember submits the admission, and returns its index in the log.
func (m *Member) admitMember(ctx context.Context, sender *wire.GossipMeta, ephemeral bool) (index uint64, err error) {
	s := m.status.Load()
	if m.identity.Cluster().IsZero() || s == nil || !s.registered {
		return 0, errors.New("it belongs to no group yet, or has just started")
	}
	reply, err := m.execute(ctx, m.cfg.Commands.AdmitMember(&wire.AdmitMember{
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
	ids := membersOf(conf)
	members = append(members, founderOf(m.meta()))
	for _, p := range m.roster.Snapshot().Peers {
		if p.GetMember() != m.identity.Member && slices.Contains(ids, p.GetMember()) && len(members) < maxMembersSent {
			members = append(members, &wire.Founder{
				Member: p.GetMember(), Name: p.GetName(), Advertise: p.GetAdvertise(), Key: p.GetKey(),
			})
		}
	}
	return members
}

// provisional returns the configuration in place of an empty one, which only a member that
// was admitted and has no state yet has: the members that it knows of.
func (m *Member) provisional(conf *raftpb.ConfState) *raftpb.ConfState {
	if len(conf.GetVoters()) > 0 {
		return conf
	}
	conf = &raftpb.ConfState{Learners: []uint64{m.identity.Member}}
	for _, p := range m.roster.Snapshot().Peers {
		conf.Voters = append(conf.Voters, p.GetMember())
	}
	return conf
}

// noteMembers records the keys of members that joined, and the addresses of those of which
// none is known.
func (m *Member) noteMembers(records []wire.MemberRecord) {
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
