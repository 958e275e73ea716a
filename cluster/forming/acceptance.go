package forming

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

func (f *Former) accepted() *wire.Proposal {
	f.changing.Acquire()
	defer f.changing.Release()
	return f.cfg.Identity.Get().GetAccepted()
}

// Answer answers a process on a FORM connection, which has proved the member and the key in r.
func (f *Former) Answer(r *wire.FormRequest) *wire.FormReply {
	sender := r.GetCandidate()
	if err := checkCandidate(sender, sender.GetMember(), sender.GetKey()); err != nil {
		return &wire.FormReply{Member: f.cfg.Identity.Member, Refusal: err.Error()}
	}
	switch {
	case r.GetAdmit():
		return f.cfg.Admit(sender, r.GetEphemeral())
	case r.GetProposal() == nil:
		return f.introduce(sender)
	}
	reply := &wire.FormReply{Member: f.cfg.Identity.Member, Refusal: unheedingReason}
	if !unheeding(sender, r.GetProposal()) || f.hasRefused(r.GetProposal()) {
		reply = f.answer(sender.GetMember(), sender.GetKey(), r.GetProposal())
	}
	reply.Candidate = f.cfg.Meta()
	return reply
}

// unheeding reports whether a founder does not heed the feature level of a proposal: its build forms
// each group with an empty state. It has started again since it was found, with an earlier build. No
// acceptance counts from or to it. That is not final: with the later build the founder heeds the level
// of what it has accepted.
func unheeding(founder *wire.GossipMeta, p *wire.Proposal) bool {
	return p.GetFeatureLevel() > 0 && founder.GetFeatureLevel() == 0
}

const unheedingReason = "a founder runs an earlier build now than when the group was proposed: start it with the later one"

// hasRefused reports whether this member has refused the proposal finally.
func (f *Former) hasRefused(p *wire.Proposal) bool {
	return slices.ContainsFunc(f.cfg.Identity.Get().GetRefused(), func(c []byte) bool { return bytes.Equal(c, p.GetCluster()) })
}

// answer answers a proposal from a member that has proved its key. An acceptance is on
// disk before it is sent.
func (f *Former) answer(from uint64, key ed25519.PublicKey, p *wire.Proposal) *wire.FormReply {
	f.changing.Acquire()
	defer f.changing.Release()
	reply := &wire.FormReply{Member: f.cfg.Identity.Member}
	record := f.cfg.Identity.Get()
	switch {
	case len(record.GetCluster()) > 0:
		reply.Accepted = bytes.Equal(record.GetCluster(), p.GetCluster())
		reply.Final = !reply.Accepted // a member never changes its cluster
		reply.Refusal = "it is a member of another cluster"
		return reply
	case len(record.GetSeen()) > 0:
		reply.Final, reply.Refusal = true, "it has found a member of an existing group, which it joins"
		return reply
	case f.hasRefused(p):
		reply.Final, reply.Refusal = true, "it has refused this proposal before"
		return reply
	case record.GetAccepted() != nil && bytes.Equal(record.GetAccepted().GetCluster(), p.GetCluster()):
		reply.Accepted = proto.Equal(record.GetAccepted(), p)
		reply.Refusal = "it accepted other founders under the same cluster ID"
		return reply
	}
	// A stranger must use up neither the acceptance nor the place for refusals.
	if reply.Refusal = f.doubt(from, key, p); reply.GetRefusal() != "" {
		return reply
	}
	if reply.Refusal = f.objection(p); record.GetAccepted() != nil {
		reply.Refusal = "it has accepted another proposal"
	}
	if reply.GetRefusal() != "" {
		reply.Final = f.refuseFinally(p) == nil
		return reply
	}
	if err := f.cfg.Identity.Save(func(r *wire.Identity) { r.Accepted = p }); err != nil {
		reply.Refusal = err.Error()
		return reply
	}
	reply.Accepted = true
	f.acceptance.Set()
	return reply
}

// doubt returns why this member can neither accept a proposal nor refuse it finally; "":
// it can. The proposal comes from its first founder, and this member has itself reached
// each founder, with that key.
func (f *Former) doubt(from uint64, key ed25519.PublicKey, p *wire.Proposal) string {
	if members, err := f.formedGroup(); err != nil || len(members) > 0 {
		return "it has found a member of an existing group"
	}
	if len(p.GetFounders()) == 0 || p.GetFounders()[0].GetMember() != from || !key.Equal(ed25519.PublicKey(p.GetFounders()[0].GetKey())) {
		return "the proposal does not come from its first founder"
	}
	for _, founder := range p.GetFounders() {
		found := f.cfg.Meta()
		if founder.GetMember() != f.cfg.Identity.Member {
			found = f.candidates.process(founder.GetMember())
		}
		if found == nil || !bytes.Equal(found.GetKey(), founder.GetKey()) {
			return fmt.Sprintf("it has not reached founder %s (%v at %s): each founder must be able to dial every other",
				founder.GetName(), wire.MemberID(founder.GetMember()), founder.GetAdvertise())
		}
	}
	return ""
}

// objection returns why this member refuses a proposal; "": it does not.
func (f *Former) objection(p *wire.Proposal) string {
	if cluster, ok := wire.IDFrom(p.GetCluster()); !ok || cluster.IsZero() {
		return "the proposal names no cluster"
	}
	if len(p.GetFounders()) != f.cfg.Expect {
		return fmt.Sprintf("the proposal has %d founders, this member expects %d: set the same Expect everywhere", len(p.GetFounders()), f.cfg.Expect)
	}
	if p.GetVoters() != f.wantedVoters() {
		return fmt.Sprintf("the proposal has %d voters, this member expects %d: set the same Voters everywhere", p.GetVoters(), f.wantedVoters())
	}
	among, last := false, uint64(0)
	for _, founder := range p.GetFounders() {
		if found := f.candidates.process(founder.GetMember()); found != nil && f.mismatch(found) != "" {
			return f.mismatch(found)
		}
		if founder.GetMember() <= last {
			return "the founders are not in order"
		}
		last = founder.GetMember()
		among = among || last == f.cfg.Identity.Member
	}
	if !among {
		return "this member is not among the founders"
	}
	return f.levelObjection(p)
}

func (f *Former) refuseFinally(p *wire.Proposal) error {
	if len(f.cfg.Identity.Get().GetRefused()) >= maxRefused || len(p.GetCluster()) != len(wire.ID{}) {
		return errors.New("too many final refusals")
	}
	return f.cfg.Identity.Save(func(r *wire.Identity) { r.Refused = append(r.Refused, p.GetCluster()) })
}

// revoke withdraws the acceptance of a proposal that a founder has refused finally. At the
// limit of refusals it stores none of its own: that founder's is on its disk, so if this
// member should accept the proposal again, it is never accepted by all.
func (f *Former) revoke(p *wire.Proposal) error {
	f.changing.Acquire()
	defer f.changing.Release()
	full := len(f.cfg.Identity.Get().GetRefused()) >= maxRefused
	if full {
		f.cfg.Logger.Warn("limit of final refusals exceeded: the proposal is dropped without a record", "limit", maxRefused)
	}
	return f.cfg.Identity.Save(func(r *wire.Identity) {
		r.Accepted = nil
		if !full {
			r.Refused = append(r.Refused, p.GetCluster())
		}
	})
}
