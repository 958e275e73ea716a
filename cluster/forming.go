package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// A new group is formed once, by agreement of all its founders. The one with
// the lowest ID proposes; each syncs its acceptance before it answers and has
// one acceptance only to give; whoever finds that all have accepted starts as
// a member. Since an acceptance is for everything or nothing, there is no
// coordinator to lose: each founder that accepted asks all the others, and a
// crash anywhere only delays.
//
// A refusal may be for good: then it is on the disk of who refused, so the
// proposal can never be accepted by all, and the others may drop it.

// maxRefused bounds the proposals refused for good that a member remembers.
// With more it still refuses, but lets nobody rely on it.
const maxRefused = 64

// formingRetry is the pause between two rounds of asking, unless gossip brings
// news before.
const formingRetry = 250 * time.Millisecond

// forming guards the identity while a group is being formed, and wakes the
// asking when a proposal has been accepted.
type forming struct {
	mu    sync.Mutex
	woken chan struct{}
	put   func(ctx context.Context, addr string, r *wire.FormRequest) (*wire.FormReply, error) // the port's Form
}

// findGroup returns once this member belongs to a group.
func (m *Member) findGroup(ctx context.Context) error {
	if !m.identity.cluster().IsZero() {
		if !m.raftLog.Bootstrapped() {
			return fmt.Errorf("%w: the member belongs to cluster %s and has no log", ErrCorrupt, m.identity.cluster())
		}
		m.port.Joined(m.identity.cluster())
		return nil
	}
	for {
		formed, err := m.form(ctx)
		if err != nil {
			return err
		}
		if formed {
			m.port.Joined(m.identity.cluster())
			if err := m.gossip.describe(m.meta()); err != nil {
				m.log.Debug("gossip is late with the news that there is a group", "error", err)
			}
			return nil
		}
		if why := m.whyNot(); errors.Is(why, errLate) {
			return why
		}
		retry := time.NewTimer(formingRetry)
		select {
		case <-ctx.Done():
			retry.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), m.whyNot())
		case <-m.lifetime.Done():
			retry.Stop()
			return m.stopped()
		case <-m.gossip.changed:
			retry.Stop()
		case <-m.forming.woken:
			retry.Stop()
		case <-retry.C:
		}
	}
}

var errLate = errors.New("the group was formed without this member: " +
	"its directory is new, and joining a group that exists already is not possible yet; " +
	"start it with the directory that it had, or form a new group")

// whyNot says what the forming waits for.
func (m *Member) whyNot() error {
	why := m.missing()
	if unmet := m.Unmet(); unmet != nil && !errors.Is(why, errLate) {
		return fmt.Errorf("%w; the last attempt to meet one: %w", why, unmet)
	}
	return why
}

// missing says what there has to be before the group can be formed.
func (m *Member) missing() error {
	if p := m.accepted(); p != nil {
		return fmt.Errorf("waiting for all %d founders of the group to accept it; "+
			"if one of them is gone for good, start the others with empty directories", len(p.GetFounders()))
	}
	found, others := 0, 0
	for _, meta := range m.gossip.alive() {
		switch {
		case len(meta.GetCluster()) > 0:
			return errLate
		case int(meta.GetExpect()) == m.cfg.Expect:
			found++
		default:
			others++
		}
	}
	if m.cfg.Expect == 0 {
		return errors.New("found no group to join; to form a new one, set Expect to the number of its first members")
	}
	if others > 0 {
		return fmt.Errorf("found %d new members of the %d expected; %d more expect another number: Expect has to be the same everywhere", found, m.cfg.Expect, others)
	}
	return fmt.Errorf("found %d new members of the %d expected; are they started, and is one of theirs among the addresses in Join?", found, m.cfg.Expect)
}

// form does what can be done now; formed says that this member has a group.
func (m *Member) form(ctx context.Context) (formed bool, err error) {
	proposal := m.accepted()
	if proposal == nil {
		if proposal = m.propose(); proposal == nil {
			return false, nil
		}
		if reply := m.Form(&wire.FormRequest{Proposal: proposal}); !reply.GetAccepted() {
			return false, nil
		}
	}
	for _, f := range proposal.GetFounders() {
		reply, err := m.ask(ctx, f, proposal)
		switch {
		case err != nil:
			m.log.Debug("a founder does not answer", "member", f.GetName(), "error", err)
			return false, nil
		case reply.GetAccepted():
		case reply.GetFinal():
			m.log.Warn("a founder refuses the group for good", "member", f.GetName(), "reason", reply.GetRefusal())
			return false, m.drop(proposal)
		default:
			m.log.Info("a founder refuses the group", "member", f.GetName(), "reason", reply.GetRefusal())
			return false, nil
		}
	}
	return true, m.found(proposal)
}

// propose makes a proposal if it is this member's turn: enough new members are
// there, and it has the lowest ID.
func (m *Member) propose() *wire.Proposal {
	var founders []*wire.Founder
	for _, meta := range m.gossip.alive() {
		if len(meta.GetCluster()) > 0 || int(meta.GetExpect()) != m.cfg.Expect {
			continue
		}
		if n := len(founders); n > 0 && founders[n-1].GetMember() == meta.GetMember() {
			founders = founders[:n-1] // an earlier start of the same member
		}
		founders = append(founders, &wire.Founder{Member: meta.GetMember(), Name: meta.GetName(), Advertise: meta.GetAdvertise()})
	}
	if m.cfg.Expect == 0 || len(founders) < m.cfg.Expect || founders[0].GetMember() != m.identity.member {
		return nil
	}
	cluster := randomID()
	return &wire.Proposal{
		Cluster:  cluster[:],
		Founders: founders[:m.cfg.Expect],
		Voters:   uint32(min(m.cfg.Voters, m.cfg.Expect)),
	}
}

func (m *Member) ask(ctx context.Context, f *wire.Founder, p *wire.Proposal) (*wire.FormReply, error) {
	if f.GetMember() == m.identity.member {
		return &wire.FormReply{Accepted: true}, nil
	}
	addr := f.GetAdvertise()
	for _, meta := range m.gossip.alive() {
		if meta.GetMember() == f.GetMember() {
			addr = meta.GetAdvertise() // it may have moved since
		}
	}
	reply, err := m.forming.put(ctx, addr, &wire.FormRequest{Proposal: p})
	if err == nil && reply.GetMember() != f.GetMember() {
		err = fmt.Errorf("member %x answers at %s instead", reply.GetMember(), addr)
	}
	return reply, err
}

func (m *Member) accepted() *wire.Proposal {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	return m.identity.get().GetAccepted()
}

// Form answers a proposal: the acceptance is on disk before the answer is.
func (m *Member) Form(r *wire.FormRequest) *wire.FormReply {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	reply := &wire.FormReply{Member: m.identity.member}
	p, record := r.GetProposal(), m.identity.get()
	switch {
	case len(record.GetCluster()) > 0:
		reply.Accepted = bytes.Equal(record.GetCluster(), p.GetCluster())
		reply.Final = !reply.Accepted // for ever, as a member never changes its cluster
		reply.Refusal = "it is a member of another cluster"
		return reply
	case slices.ContainsFunc(record.GetRefused(), func(c []byte) bool { return bytes.Equal(c, p.GetCluster()) }):
		reply.Final, reply.Refusal = true, "it has refused this proposal before"
		return reply
	case record.GetAccepted() != nil && bytes.Equal(record.GetAccepted().GetCluster(), p.GetCluster()):
		reply.Accepted = proto.Equal(record.GetAccepted(), p)
		reply.Refusal = "it accepted other founders under the same cluster ID"
		return reply
	case record.GetAccepted() != nil:
		reply.Refusal = "it has accepted another proposal"
	default:
		reply.Refusal = m.objection(p)
	}
	if reply.GetRefusal() != "" {
		reply.Final = m.refuseForEver(p) == nil
		return reply
	}
	if err := m.identity.save(func(r *wire.Identity) { r.Accepted = p }); err != nil {
		reply.Refusal = err.Error()
		return reply
	}
	reply.Accepted = true
	select {
	case m.forming.woken <- struct{}{}:
	default:
	}
	return reply
}

// objection says what is wrong with a proposal; "" is nothing.
func (m *Member) objection(p *wire.Proposal) string {
	if cluster, ok := wire.IDFrom(p.GetCluster()); !ok || cluster.IsZero() {
		return "it names no cluster"
	}
	if len(p.GetFounders()) != m.cfg.Expect {
		return fmt.Sprintf("it has %d founders, this member expects %d", len(p.GetFounders()), m.cfg.Expect)
	}
	if p.GetVoters() < 1 || int(p.GetVoters()) > len(p.GetFounders()) {
		return fmt.Sprintf("%d voters of %d", p.GetVoters(), len(p.GetFounders()))
	}
	among, last := false, uint64(0)
	for _, f := range p.GetFounders() {
		if f.GetMember() <= last {
			return "its founders are not in order"
		}
		last = f.GetMember()
		among = among || last == m.identity.member
	}
	if !among {
		return "this member is not among the founders"
	}
	return ""
}

func (m *Member) refuseForEver(p *wire.Proposal) error {
	if len(m.identity.get().GetRefused()) >= maxRefused || len(p.GetCluster()) != len(wire.ID{}) {
		return errors.New("no room to remember the refusal")
	}
	return m.identity.save(func(r *wire.Identity) { r.Refused = append(r.Refused, p.GetCluster()) })
}

// drop takes an acceptance back. Somebody has refused the proposal for good,
// so it cannot come into force without us either.
func (m *Member) drop(p *wire.Proposal) error {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	return m.identity.save(func(r *wire.Identity) {
		r.Accepted = nil
		r.Refused = append(r.Refused, p.GetCluster())
	})
}

// found makes this member one of the new group. The log comes first: an
// identity with a cluster and without a log would be a member that forgot
// everything, a log without a cluster is found again by asking once more.
func (m *Member) found(p *wire.Proposal) error {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	conf := &raftpb.ConfState{}
	for i, f := range p.GetFounders() {
		if i < int(p.GetVoters()) {
			conf.Voters = append(conf.Voters, f.GetMember())
		} else {
			conf.Learners = append(conf.Learners, f.GetMember())
		}
	}
	if !m.raftLog.Bootstrapped() {
		if err := m.raftLog.Bootstrap(conf); err != nil {
			return err
		}
	}
	if err := m.identity.save(func(r *wire.Identity) {
		r.Cluster, r.Accepted, r.Refused = p.GetCluster(), nil, nil
	}); err != nil {
		return err
	}
	for _, f := range p.GetFounders() {
		m.book.met(f.GetMember(), f.GetName(), f.GetAdvertise())
	}
	m.first = p.GetFounders()[0].GetMember() == m.identity.member
	m.log.Info("the group is formed", "cluster", m.identity.cluster(), "members", len(p.GetFounders()))
	return nil
}
