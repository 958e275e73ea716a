package core

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/conclave-go/conclave/internal/wire"
)

// Arbitration of digests. Voters send each other, and the standbys, the digests of their
// states at equal indexes. A member whose digest differs from that of a majority of all
// voters stops; a leader steps down first. Nothing else stops a member: not a single
// voter, nor an entry, so a faulty leader cannot stop the others. When voters differ and
// no majority agrees, it is unknown which of them is right: that is logged, and none
// stops.
//
// A voter sends its digest at each multiple of digestStride, at each index of which it
// has received another voter's digest, once, and when it has sent none for an election
// timeout. Any voter can thus start a comparison at any recent index, and a lost message
// is repeated.

// arbitration is how this member's digests compare with the others', which peers have.
type arbitration struct {
	sentAt   uint64      // the tick of the last digest sent
	agreed   uint64      // the last index at which this member agrees with a majority
	disputed uint64      // the last index at which a voter differs that is not known to be wrong, and no majority agrees; 0: none
	since    uint64      // the tick of the first dispute since the last agreement
	reported bool        // the dispute has been logged
	diverged *divergence // nil: this member does not differ
}

// divergence is this member's difference from a majority of the voters.
type divergence struct {
	*DivergedError
	at       uint64   // tick of its detection
	majority []uint64 // the voters that agree
	stepping bool     // a leadership transfer has been started
}

// DivergedError reports that this member's state differs from that of a majority of the
// voters. It wraps ErrCorrupt.
type DivergedError struct {
	Index, Digest, Majority uint64
}

// Error implements error.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("%v: at index %d a majority of the voters has the digest %016x, this member %016x", ErrCorrupt, e.Index, e.Majority, e.Digest)
}

// Unwrap returns ErrCorrupt.
func (*DivergedError) Unwrap() error { return ErrCorrupt }

// ReceiveDigest receives the digest of another member. Only voters' digests count.
func (c *Core) ReceiveDigest(from uint64, d *wire.Digest) {
	index := d.GetIndex()
	if from == c.id || index == 0 || !c.isVoter(from) {
		return
	}
	if from == c.role.Lead {
		c.reported.note(from, c.term, index) // it has applied that
	}
	c.peers.byID[from].claim(index, d.GetDigest())
	c.compare(index)
}

// digestAdded compares and sends the digest of the entry just applied, if it is due.
func (c *Core) digestAdded() {
	index := c.digests.index
	if index%digestStride == 0 {
		c.sendDigest(index)
		c.compare(index)
		return
	}
	if slices.ContainsFunc(c.peers.all, func(p *peer) bool { return p.claimed(index) != nil }) {
		c.compare(index)
	}
}

// sendDigest sends the digest at an index that this member keeps to all members.
func (c *Core) sendDigest(index uint64) {
	own := c.digests.kept.at(index)
	if own == nil || !c.isVoter(c.id) {
		return
	}
	own.sent = true
	c.arbitration.sentAt = c.ticks
	for _, id := range slices.Concat(c.conf.GetVoters(), c.conf.GetLearners()) {
		if id != c.id {
			c.out.Digests = append(c.out.Digests, DigestMessage{id, &wire.Digest{Index: index, Digest: own.digest}})
		}
	}
}

// startComparison sends the digest of the applied state. The other voters answer with
// theirs.
func (c *Core) startComparison() {
	c.sendDigest(c.digests.index)
	c.compare(c.digests.index)
}

// compare compares the digests at index.
func (c *Core) compare(index uint64) {
	a, own := &c.arbitration, c.digests.kept.at(index)
	if own == nil || a.diverged != nil {
		return
	}
	if !own.sent {
		c.sendDigest(index)
	}
	votes := c.digestVotes(index)
	need := len(c.conf.GetVoters())/2 + 1
	for _, digest := range votes { // order: at most one has a majority
		agree := votersWith(votes, digest)
		if len(agree) < need {
			continue
		}
		if digest != own.digest {
			a.diverged = &divergence{DivergedError: &DivergedError{index, own.digest, digest}, at: c.ticks, majority: agree}
			c.cfg.Logger.Error("state differs from that of a majority of the voters, stopping", "index", index, "voters", wire.MemberIDs(agree))
			return
		}
		c.agree(index, votes, digest)
		return
	}
	for _, p := range c.peers.all {
		if p.differs {
			delete(votes, p.id) // it is known to be wrong
		}
	}
	if index > a.agreed && len(votersWith(votes, own.digest)) < len(votes) {
		if a.disputed == 0 {
			a.since = c.ticks
		}
		a.disputed = max(a.disputed, index)
	}
}

// digestVotes returns the digests of the voters at index, as far as they are known.
func (c *Core) digestVotes(index uint64) map[uint64]uint64 {
	votes := make(map[uint64]uint64)
	for _, id := range c.conf.GetVoters() {
		if id == c.id {
			votes[id] = c.digests.kept.at(index).digest
		} else if claimed := c.peers.byID[id].claimed(index); claimed != nil {
			votes[id] = claimed.digest
		}
	}
	return votes
}

// votersWith returns the voters that have the digest, by ID.
func votersWith(votes map[uint64]uint64, digest uint64) (voters []uint64) {
	for id, d := range votes { // order: sorted below
		if d == digest {
			voters = append(voters, id)
		}
	}
	slices.Sort(voters)
	return voters
}

// agree notes that this member agrees with a majority at index, and logs the voters that
// do not.
func (c *Core) agree(index uint64, votes map[uint64]uint64, digest uint64) {
	a := &c.arbitration
	a.agreed = max(a.agreed, index)
	if a.disputed <= index {
		a.settled()
	}
	for _, p := range c.peers.all {
		d, known := votes[p.id]
		switch {
		case !known:
		case d == digest:
			p.differs = false
		case !p.differs:
			p.differs = true
			a.settled()
			c.cfg.Logger.Error("state of a voter differs from the majority's, it must stop", "member", wire.MemberID(p.id), "index", index)
		}
	}
}

// checkDigests runs in each tick. It starts a comparison when this voter has sent nothing
// for an election timeout, and logs a dispute that no majority has settled meanwhile.
func (c *Core) checkDigests() {
	a := &c.arbitration
	timeout := uint64(c.cfg.ElectionTicks)
	if c.ticks >= a.sentAt+timeout {
		c.startComparison()
	}
	if a.disputed != 0 && !a.reported && c.ticks >= a.since+2*timeout {
		a.reported = true
		c.cfg.Logger.Error("states of voters differ, and no majority agrees", "index", a.disputed, "voters", wire.MemberIDs(c.conf.GetVoters()))
	}
}

// settled ends the dispute. If another voter differs too, its next digest shows it.
func (a *arbitration) settled() { a.disputed, a.reported = 0, false }

// contested reports whether this member's state differs from a voter's, and no majority
// agrees with it.
func (a *arbitration) contested() bool { return a.disputed != 0 || a.diverged != nil }

// takeDiverged is Take of a member whose state differs from the majority's. Nothing that
// it has computed since is delivered, applied or proposed. A leader continues for an
// election timeout at most, to transfer leadership to a voter of the majority.
func (c *Core) takeDiverged() (Effects, error) {
	d := c.arbitration.diverged
	if !c.isLeader() || c.ticks >= d.at+uint64(c.cfg.ElectionTicks) {
		return Effects{}, d.DivergedError
	}
	if !d.stepping {
		to := c.successor(d.majority)
		if to == raft.None {
			return Effects{}, d.DivergedError
		}
		d.stepping = true
		c.node.TransferLeader(to)
	}
	for c.isLeader() && c.node.HasReady() {
		if err := c.ready(c.node.Ready()); err != nil {
			return Effects{}, err
		}
	}
	out := Effects{Messages: c.out.Messages, Digests: c.out.Digests, Cancelled: c.out.Cancelled, Machine: c.machine, Batch: Batch{c.disk.next(c.ticks)}}
	c.out.Messages, c.out.Digests, c.out.Cancelled = nil, nil, nil
	return out, nil
}
