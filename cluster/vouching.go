package cluster

import (
	"crypto/ed25519"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// A member that was down, or that has just been admitted, may not know the member that leads
// now: it joined by a change that this member's log does not contain yet, and only that
// leader could send it. So over each new connection a member sends the membership that it has
// applied. A peer whose log is behind that accepts connections of those members too, until
// its own log has caught up. The statement of one proven member suffices: that member could
// itself lead, and send any log.
//
// To a member that knows none of them any more, since all were replaced while it was down,
// they present endorsements (endorsements.go).

// maxVouched bounds the members for which others have vouched.
const maxVouched = 256

// vouched is the members for which other members have vouched, up to an index of the log.
// It is owned by the loop's goroutine.
type vouched struct {
	index   uint64
	members map[uint64]bool
}

// sendMembership sends a peer what this member has applied. It runs on the loop's goroutine.
func (m *Member) sendMembership(peer uint64) {
	s := m.core.Status()
	if len(s.Membership.GetVoters()) == 0 {
		return
	}
	body := &wire.Membership{Index: s.Applied}
	conf := membersOf(s.Membership)
	for _, f := range m.membersForNewcomer() {
		if slices.Contains(conf, f.GetMember()) {
			body.Members = append(body.Members, &wire.VouchedMember{
				Member: f.GetMember(), Key: f.GetKey(), Name: f.GetName(), Advertise: f.GetAdvertise(),
			})
		}
	}
	m.port.Send(peer, &wire.Frame{Body: &wire.Frame_Membership{Membership: body}})
}

// receiveMembership notes the members for which a peer vouches. It runs on the loop's
// goroutine.
func (m *Member) receiveMembership(from uint64, body *wire.Membership) {
	s := m.core.Status()
	if body.GetIndex() <= s.Applied || !slices.Contains(membersOf(m.withVouched(m.provisional(s.Membership))), from) {
		return
	}
	if m.vouched.members[from] { // it was endorsed
		m.vouched.index = max(m.vouched.index, body.GetIndex())
	}
	changed := false
	for _, v := range body.GetMembers() {
		if m.vouch(s, v) {
			m.log.Info("another member vouches for a member", "member", wire.MemberID(v.GetMember()), "by", wire.MemberID(from))
			changed = true
		}
	}
	if changed {
		m.vouched.index = max(m.vouched.index, body.GetIndex())
		m.setMembership(s.Membership)
	}
}

// vouch adds a member to those for which others have vouched, and reports whether it was none.
func (m *Member) vouch(s core.Status, v *wire.VouchedMember) bool {
	id := v.GetMember()
	switch {
	case id == m.identity.member, slices.Contains(membersOf(s.Membership), id), m.vouched.members[id]:
		return false
	case len(v.GetKey()) != ed25519.PublicKeySize, wire.FingerprintOf(v.GetKey()) != id:
		return false
	case len(m.vouched.members) >= maxVouched, slices.Contains(m.core.Machine().Removed(), id):
		return false
	}
	if m.vouched.members == nil {
		m.vouched.members = make(map[uint64]bool)
	}
	m.vouched.members[id] = true
	m.noteMembers([]wire.MemberRecord{{ID: id, Name: v.GetName(), Advertise: v.GetAdvertise(), Key: v.GetKey()}})
	return true
}

// withVouched adds the members for which others have vouched to a configuration, as standbys,
// until this member has applied the log as far as they had.
func (m *Member) withVouched(conf *raftpb.ConfState) *raftpb.ConfState {
	if len(m.vouched.members) == 0 {
		return conf
	}
	if m.core.Status().Applied >= m.vouched.index {
		m.vouched = vouched{}
		return conf
	}
	members := membersOf(conf)
	learners := slices.Clone(conf.GetLearners())
	for id := range m.vouched.members { // order: of a set
		if !slices.Contains(members, id) {
			learners = append(learners, id)
		}
	}
	return &raftpb.ConfState{Voters: conf.GetVoters(), VotersOutgoing: conf.GetVotersOutgoing(), Learners: learners}
}

// reconsiderVouched forgets the members for which others have vouched once this member's own
// log is as far as theirs. It runs in each tick.
func (m *Member) reconsiderVouched() {
	if s := m.core.Status(); len(m.vouched.members) > 0 && s.Applied >= m.vouched.index {
		m.membershipChanged(s.Membership)
	}
}
