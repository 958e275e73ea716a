package cluster

import (
	"crypto/ed25519"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
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

// vouched is the members for which others have vouched. It is owned by the loop's goroutine.
type vouched map[uint64]*voucher

// voucher is on whose word a member is accepted, and until when.
type voucher struct {
	index uint64   // the log has to have
	by    []uint64 // none of these may be removed
}

// sendMembership sends a peer what this member has applied. It runs on the loop's goroutine.
func (m *Member) sendMembership(peer uint64) {
	s := m.core.Status()
	if len(s.Membership.GetVoters()) == 0 {
		return
	}
	body := &wire.Membership{Index: s.Applied}
	for _, f := range m.membersOf(s.Membership) {
		body.Members = append(body.Members, &wire.VouchedMember{
			Member: f.GetMember(), Key: f.GetKey(), Name: f.GetName(), Advertise: f.GetAdvertise(),
		})
	}
	m.port.Send(peer, &wire.Frame{Body: &wire.Frame_Membership{Membership: body}})
}

// receiveMembership notes the members for which a peer vouches. It runs on the loop's
// goroutine.
func (m *Member) receiveMembership(from uint64, body *wire.Membership) {
	m.reconsiderVouched() // a later index must not renew what is over
	s := m.core.Status()
	if body.GetIndex() <= s.Applied || !slices.Contains(replica.MembersOf(m.withVouched(m.provisional(s.Membership))), from) {
		return
	}
	by := []uint64{from}
	if v := m.vouched[from]; v != nil { // it was endorsed
		v.index = max(v.index, body.GetIndex())
		by = append(by, v.by...)
	}
	changed := false
	for _, v := range body.GetMembers() {
		if known := m.vouched[v.GetMember()]; known != nil {
			known.index = max(known.index, body.GetIndex())
		}
		if m.vouch(s, v, voucher{index: body.GetIndex(), by: by}) {
			m.log.Info("another member vouches for a member", "member", wire.MemberID(v.GetMember()), "by", wire.MemberID(from))
			changed = true
		}
	}
	if changed {
		m.setMembership(s.Membership)
	}
}

// vouch adds a member to those for which others have vouched, and reports whether it was none.
func (m *Member) vouch(s core.Status, v *wire.VouchedMember, by voucher) bool {
	id := v.GetMember()
	switch {
	case id == m.identity.Member, slices.Contains(replica.MembersOf(s.Membership), id), m.vouched[id] != nil:
		return false
	case len(v.GetKey()) != ed25519.PublicKeySize, wire.FingerprintOf(v.GetKey()) != id:
		return false
	case len(m.vouched) >= maxVouched, m.isOver(id, &by, s.Applied):
		return false
	}
	if m.vouched == nil {
		m.vouched = make(vouched)
	}
	m.vouched[id] = &by
	m.noteMembers([]wire.MemberRecord{{ID: id, Name: v.GetName(), Advertise: v.GetAdvertise(), Key: v.GetKey()}})
	return true
}

// isOver reports whether a member is not accepted any more on the word of others.
func (m *Member) isOver(id uint64, v *voucher, applied uint64) bool {
	removed := m.core.Machine().Removed()
	return applied >= v.index || core.Includes(removed, id) ||
		slices.ContainsFunc(v.by, func(id uint64) bool { return core.Includes(removed, id) })
}

// withVouched adds the members for which others have vouched to a configuration, as standbys,
// until this member has applied the log as far as they had.
func (m *Member) withVouched(conf *raftpb.ConfState) *raftpb.ConfState {
	members := replica.MembersOf(conf)
	learners := slices.Clone(conf.GetLearners())
	applied := m.core.Status().Applied
	for id, v := range m.vouched { // order: of a set
		if !slices.Contains(members, id) && !m.isOver(id, v, applied) {
			learners = append(learners, id)
		}
	}
	return &raftpb.ConfState{Voters: conf.GetVoters(), VotersOutgoing: conf.GetVotersOutgoing(), Learners: learners}
}

// reconsiderVouched forgets the members for which others have vouched once this member's own
// log is as far as theirs, or has the removal of one on whose word they are accepted. It runs in
// each tick.
func (m *Member) reconsiderVouched() {
	if len(m.vouched) == 0 {
		return
	}
	s, before := m.core.Status(), len(m.vouched)
	maps.DeleteFunc(m.vouched, func(id uint64, v *voucher) bool { return m.isOver(id, v, s.Applied) })
	if len(m.vouched) < before {
		m.membershipChanged(s.Membership)
	}
}
