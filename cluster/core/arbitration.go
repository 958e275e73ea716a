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
	*raftNode
	peers   *peers
	digests *digests
	out     *Effects

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

// receive receives the digest of another member. Only voters' digests count.
func (a *arbitration) receive(from uint64, d *wire.Digest) (counts bool) {
	index := d.GetIndex()
	if from == a.id || index == 0 || !a.isVoter(from) {
		return false
	}
	a.peers.byID[from].claim(index, d.GetDigest())
	a.compare(index)
	return true
}

// digestAdded compares and sends the digest of the entry just applied, if it is due.
func (a *arbitration) digestAdded() {
	index := a.digests.index
	if index%digestStride == 0 {
		a.sendDigest(index)
		a.compare(index)
		return
	}
	if slices.ContainsFunc(a.peers.all, func(p *peer) bool { return p.claimed(index) != nil }) {
		a.compare(index)
	}
}

// sendDigest sends the digest at an index that this member keeps to all members.
func (a *arbitration) sendDigest(index uint64) {
	own := a.digests.kept.at(index)
	if own == nil || !a.isVoter(a.id) {
		return
	}
	own.sent = true
	a.sentAt = a.ticks
	for _, id := range slices.Concat(a.conf.GetVoters(), a.conf.GetLearners()) {
		if id != a.id {
			a.out.Digests = append(a.out.Digests, DigestMessage{id, &wire.Digest{Index: index, Digest: own.digest}})
		}
	}
}

// startComparison sends the digest of the applied state. The other voters answer with
// theirs.
func (a *arbitration) startComparison() {
	a.sendDigest(a.digests.index)
	a.compare(a.digests.index)
}

// compare compares the digests at index.
func (a *arbitration) compare(index uint64) {
	own := a.digests.kept.at(index)
	if own == nil || a.diverged != nil {
		return
	}
	if !own.sent {
		a.sendDigest(index)
	}
	votes := a.digestVotes(index)
	need := len(a.conf.GetVoters())/2 + 1
	for _, digest := range votes { // order: at most one has a majority
		agree := votersWith(votes, digest)
		if len(agree) < need {
			continue
		}
		if digest != own.digest {
			a.diverged = &divergence{DivergedError: &DivergedError{index, own.digest, digest}, at: a.ticks, majority: agree}
			a.logger.Error("state differs from that of a majority of the voters, stopping", "index", index, "voters", wire.MemberIDs(agree))
			return
		}
		a.agree(index, votes, digest)
		return
	}
	for _, p := range a.peers.all {
		if p.differs {
			delete(votes, p.id) // it is known to be wrong
		}
	}
	if index > a.agreed && len(votersWith(votes, own.digest)) < len(votes) {
		if a.disputed == 0 {
			a.since = a.ticks
		}
		a.disputed = max(a.disputed, index)
	}
}

// digestVotes returns the digests of the voters at index, as far as they are known.
func (a *arbitration) digestVotes(index uint64) map[uint64]uint64 {
	votes := make(map[uint64]uint64)
	for _, id := range a.conf.GetVoters() {
		if id == a.id {
			votes[id] = a.digests.kept.at(index).digest
		} else if claimed := a.peers.byID[id].claimed(index); claimed != nil {
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
func (a *arbitration) agree(index uint64, votes map[uint64]uint64, digest uint64) {
	a.agreed = max(a.agreed, index)
	if a.disputed <= index {
		a.settled()
	}
	for _, p := range a.peers.all {
		d, known := votes[p.id]
		switch {
		case !known:
		case d == digest:
			p.differs = false
		case !p.differs:
			p.differs = true
			a.settled()
			a.logger.Error("state of a voter differs from the majority's, it must stop", "member", wire.MemberID(p.id), "index", index)
		}
	}
}

// checkDigests runs in each tick. It starts a comparison when this voter has sent nothing
// for an election timeout, and logs a dispute that no majority has settled meanwhile.
func (a *arbitration) checkDigests() {
	timeout := a.electionTicks
	if a.ticks >= a.sentAt+timeout {
		a.startComparison()
	}
	if a.disputed != 0 && !a.reported && a.ticks >= a.since+2*timeout {
		a.reported = true
		a.logger.Error("states of voters differ, and no majority agrees", "index", a.disputed, "voters", wire.MemberIDs(a.conf.GetVoters()))
	}
}

// settled ends the dispute. If another voter differs too, its next digest shows it.
func (a *arbitration) settled() { a.disputed, a.reported = 0, false }

// contested reports whether this member's state differs from a voter's, and no majority
// agrees with it.
func (a *arbitration) contested() bool { return a.disputed != 0 || a.diverged != nil }

// stepDownFirst is what a member does whose state differs from the majority's. It returns an error if it
// must stop. A leader continues for an election timeout at most, to transfer leadership to a voter
// of the majority.
func (a *arbitration) stepDownFirst() error {
	d := a.diverged
	if !a.isLeader() || a.ticks >= d.at+a.electionTicks {
		return d.DivergedError
	}
	if !d.stepping {
		to := a.successor(d.majority)
		if to == raft.None {
			return d.DivergedError
		}
		d.stepping = true
		a.node.TransferLeader(to)
	}
	return nil
}
