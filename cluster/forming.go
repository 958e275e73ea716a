package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Forming a new group: once, by unanimous agreement of its founders.
//
// The founder with the lowest ID proposes. Each founder accepts at most one proposal and
// syncs its acceptance to disk before it answers. A founder that has the acceptances of
// all starts as a member. There is no coordinator: each founder that has accepted
// requests the acceptances of all others itself, so a crash only delays.
//
// A refusal may be final: it is on the disk of the founder that refuses, so the proposal
// can never be accepted by all, and the others may revoke their acceptances.

// maxRefused bounds the final refusals that a member stores. Further refusals are not
// final.
const maxRefused = 64

const (
	// formingRetry is the pause between two rounds, unless the roster changes.
	formingRetry = 250 * time.Millisecond
	// formingReport is the time between two log lines about what forming waits for.
	formingReport = 10 * time.Second
)

type forming struct {
	mu       sync.Mutex                                                                           // held while the identity changes
	accepted signal                                                                               // set when a proposal is accepted
	send     func(ctx context.Context, addr string, r *wire.FormRequest) (*wire.FormReply, error) // the transport's Form
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
	m.warnConfig()
	reported := time.Now()
	for {
		formed, err := m.form(ctx)
		if err != nil {
			return err
		}
		if formed {
			m.port.Joined(m.identity.cluster())
			if err := m.gossip.setMeta(m.meta()); err != nil {
				m.log.Debug("gossip not updated", "error", err)
			}
			return nil
		}
		why := m.waitReason()
		if errors.Is(why, errFormedWithout) {
			return why
		}
		if time.Since(reported) >= formingReport {
			m.log.Info("waiting to form or find the group", "reason", why)
			reported = time.Now()
		}
		retry := time.NewTimer(formingRetry)
		select {
		case <-ctx.Done():
			retry.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), m.waitReason())
		case <-m.lifetime.Done():
			retry.Stop()
			return m.stopped()
		case <-m.roster.changed:
			retry.Stop()
		case <-m.forming.accepted:
			retry.Stop()
		case <-retry.C:
		}
	}
}

// warnConfig warns of valid configurations that are probably mistakes.
func (m *Member) warnConfig() {
	if m.cfg.Expect > m.cfg.Voters {
		m.log.Warn("Expect is larger than Voters: some founders will be standbys", "expect", m.cfg.Expect, "voters", m.cfg.Voters)
	}
	if m.cfg.Dir == "" && m.cfg.Expect != 1 {
		m.log.Warn("no Dir: a restart of this process loses the member, and this version cannot add a member to an existing group")
	}
}

var errFormedWithout = errors.New("the group was formed without this member, whose directory is new: " +
	"this version cannot add a member to an existing group; if it was a member before, start it with the directory that it had")

// waitReason returns what forming waits for, with the error of the last attempt to join.
func (m *Member) waitReason() error {
	why := m.missingFounders()
	if err := m.JoinError(); err != nil && !errors.Is(why, errFormedWithout) {
		return fmt.Errorf("%w; the last attempt to reach one: %w", why, err)
	}
	return why
}

// missingFounders returns what is still missing before the group can be formed.
func (m *Member) missingFounders() error {
	if p := m.accepted(); p != nil {
		return fmt.Errorf("waiting for all %d founders to accept the group: start each with its own directory", len(p.GetFounders()))
	}
	found := 0
	var mismatches []string
	for _, meta := range m.roster.snapshot().processes {
		switch {
		case len(meta.GetCluster()) > 0:
			return errFormedWithout
		case m.mismatch(meta) != "":
			mismatches = append(mismatches, m.mismatch(meta))
		default:
			found++
		}
	}
	if m.cfg.Expect == 0 {
		return errors.New("found no group to join: to form a new one, set Expect to the number of its founders")
	}
	if len(mismatches) > 0 {
		return fmt.Errorf("found %d of %d founders, and others with another configuration: %s: Expect and Voters must be the same everywhere",
			found, m.cfg.Expect, strings.Join(mismatches, "; "))
	}
	return fmt.Errorf("found %d of %d founders: start the others, with one of their addresses in Join", found, m.cfg.Expect)
}

// mismatch describes the setting in which a founder differs from this member; "": none.
func (m *Member) mismatch(meta *wire.GossipMeta) string {
	founder := fmt.Sprintf("%s (%v at %s)", meta.GetName(), wire.MemberID(meta.GetMember()), meta.GetAdvertise())
	switch {
	case int(meta.GetExpect()) != m.cfg.Expect:
		return fmt.Sprintf("%s expects %d founders, this member %d", founder, meta.GetExpect(), m.cfg.Expect)
	case meta.GetVoters() != 0 && int(meta.GetVoters()) != m.cfg.Voters: // 0: a version that does not gossip it
		return fmt.Sprintf("%s expects %d voters, this member %d", founder, meta.GetVoters(), m.cfg.Voters)
	}
	return ""
}

// form is one round of forming. It reports whether the group is formed.
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
		reply, err := m.requestAcceptance(ctx, f, proposal)
		switch {
		case err != nil:
			m.log.Debug("founder does not answer", "member", wire.MemberID(f.GetMember()), "name", f.GetName(), "error", err)
			return false, nil
		case reply.GetAccepted():
		case reply.GetFinal():
			m.log.Warn("founder refuses the group finally", "member", wire.MemberID(f.GetMember()), "name", f.GetName(), "reason", reply.GetRefusal())
			return false, m.revoke(proposal)
		default:
			m.log.Info("founder refuses the group", "member", wire.MemberID(f.GetMember()), "name", f.GetName(), "reason", reply.GetRefusal())
			return false, nil
		}
	}
	return true, m.bootstrap(proposal)
}

// propose returns a proposal if enough founders are present and this member has the
// lowest ID among them.
func (m *Member) propose() *wire.Proposal {
	var founders []*wire.Founder
	for _, meta := range m.roster.snapshot().processes {
		if len(meta.GetCluster()) > 0 || m.mismatch(meta) != "" {
			continue
		}
		if n := len(founders); n > 0 && founders[n-1].GetMember() == meta.GetMember() {
			founders = founders[:n-1] // a former process of the same member
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
		Voters:   m.wantedVoters(),
	}
}

func (m *Member) wantedVoters() uint32 { return uint32(min(m.cfg.Voters, m.cfg.Expect)) }

func (m *Member) requestAcceptance(ctx context.Context, f *wire.Founder, p *wire.Proposal) (*wire.FormReply, error) {
	if f.GetMember() == m.identity.member {
		return &wire.FormReply{Accepted: true}, nil
	}
	addr := f.GetAdvertise()
	for _, meta := range m.roster.snapshot().processes {
		if meta.GetMember() == f.GetMember() {
			addr = meta.GetAdvertise() // it may have moved since the proposal
		}
	}
	reply, err := m.forming.send(ctx, addr, &wire.FormRequest{Proposal: p})
	if err == nil && reply.GetMember() != f.GetMember() {
		err = fmt.Errorf("member %v answers at %s instead", wire.MemberID(reply.GetMember()), addr)
	}
	return reply, err
}

func (m *Member) accepted() *wire.Proposal {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	return m.identity.get().GetAccepted()
}

// Form implements transport.Handler. An acceptance is on disk before it is sent.
func (m *Member) Form(r *wire.FormRequest) *wire.FormReply {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	reply := &wire.FormReply{Member: m.identity.member}
	p, record := r.GetProposal(), m.identity.get()
	switch {
	case len(record.GetCluster()) > 0:
		reply.Accepted = bytes.Equal(record.GetCluster(), p.GetCluster())
		reply.Final = !reply.Accepted // a member never changes its cluster
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
		reply.Final = m.refuseFinally(p) == nil
		return reply
	}
	if err := m.identity.save(func(r *wire.Identity) { r.Accepted = p }); err != nil {
		reply.Refusal = err.Error()
		return reply
	}
	reply.Accepted = true
	m.forming.accepted.set()
	return reply
}

// objection returns why this member refuses a proposal; "": it does not.
func (m *Member) objection(p *wire.Proposal) string {
	if cluster, ok := wire.IDFrom(p.GetCluster()); !ok || cluster.IsZero() {
		return "the proposal names no cluster"
	}
	if len(p.GetFounders()) != m.cfg.Expect {
		return fmt.Sprintf("the proposal has %d founders, this member expects %d: set the same Expect everywhere", len(p.GetFounders()), m.cfg.Expect)
	}
	if p.GetVoters() != m.wantedVoters() {
		return fmt.Sprintf("the proposal has %d voters, this member expects %d: set the same Voters everywhere", p.GetVoters(), m.wantedVoters())
	}
	among, last := false, uint64(0)
	for _, f := range p.GetFounders() {
		if f.GetMember() <= last {
			return "the founders are not in order"
		}
		last = f.GetMember()
		among = among || last == m.identity.member
	}
	if !among {
		return "this member is not among the founders"
	}
	return ""
}

func (m *Member) refuseFinally(p *wire.Proposal) error {
	if len(m.identity.get().GetRefused()) >= maxRefused || len(p.GetCluster()) != len(wire.ID{}) {
		return errors.New("too many final refusals")
	}
	return m.identity.save(func(r *wire.Identity) { r.Refused = append(r.Refused, p.GetCluster()) })
}

// revoke withdraws the acceptance of a proposal that a founder has refused finally.
func (m *Member) revoke(p *wire.Proposal) error {
	m.forming.mu.Lock()
	defer m.forming.mu.Unlock()
	return m.identity.save(func(r *wire.Identity) {
		r.Accepted = nil
		r.Refused = append(r.Refused, p.GetCluster())
	})
}

// bootstrap makes this member a member of the new group. It writes the log before the
// identity: an identity with a cluster but no log is a member that has lost its state,
// whereas a log without a cluster only repeats the last round of forming.
func (m *Member) bootstrap(p *wire.Proposal) error {
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
		m.roster.setFounder(f)
	}
	m.first = p.GetFounders()[0].GetMember() == m.identity.member
	m.log.Info("group formed", "cluster", m.identity.cluster(), "members", len(p.GetFounders()))
	return nil
}
