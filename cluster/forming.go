package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// Forming a new group: once, by unanimous agreement of its founders. search.go finds
// them, acceptance.go answers their proposals.
//
// The founder with the lowest ID proposes. Each founder accepts at most one proposal and
// syncs its acceptance to disk before it answers. A founder that has the acceptances of
// all starts as a member. There is no coordinator: each founder that has accepted
// requests the acceptances of all others itself, so a crash only delays.
//
// A refusal may be final: it is on the disk of the founder that refuses, so the proposal
// can never be accepted by all, and the others may revoke their acceptances.

// maxRefused bounds the final refusals that a member stores, its own and those of other
// founders that made it revoke an acceptance. Further ones of its own are not final.
const maxRefused = 64

const (
	// formingRetry is the pause between two rounds, unless the candidates change.
	formingRetry = 250 * time.Millisecond
	// formingReport is the time between two log lines about what forming waits for.
	formingReport = 10 * time.Second
)

type forming struct {
	changing wait.Lock                                                                                    // held while the identity changes
	accepted wait.Signal                                                                                  // set when a proposal is accepted
	send     func(ctx context.Context, to transport.Target, r *wire.FormRequest) (*wire.FormReply, error) // the transport's Form
	refusal  string                                                                                       // of a founder, in the last round; owned by findGroup
}

// findGroup returns once this member belongs to a group.
func (m *Member) findGroup(ctx context.Context) error {
	if !m.identity.Cluster().IsZero() {
		if !m.raftLog.Bootstrapped() && !m.identity.Get().GetJoined() {
			return fmt.Errorf("%w: the member belongs to cluster %s and has no log", ErrCorrupt, m.identity.Cluster())
		}
		m.port.Joined(m.identity.Cluster())
		return nil
	}
	m.warnConfig()
	searching, stop := context.WithCancel(m.lifetime)
	defer stop()
	m.routine("search", func() { m.search(searching) })
	reported := time.Now()
	for {
		found, err := m.formOrJoin(ctx)
		if err != nil {
			return err
		}
		if found {
			m.port.Joined(m.identity.Cluster())
			return nil
		}
		if time.Since(reported) >= formingReport {
			m.log.Info("waiting to form or find the group", "reason", m.waitReason())
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
		case <-m.candidates.changed:
			retry.Stop()
		case <-m.forming.accepted:
			retry.Stop()
		case <-retry.C:
		}
	}
}

// formOrJoin is one round. It reports whether this member belongs to a group.
func (m *Member) formOrJoin(ctx context.Context) (found bool, err error) {
	if found, err = m.form(ctx); found || err != nil {
		return found, err
	}
	return m.joinGroup(ctx)
}

// warnConfig warns of valid configurations that are probably mistakes.
func (m *Member) warnConfig() {
	if m.cfg.Expect > m.cfg.Voters {
		m.log.Warn("Expect is larger than Voters: some founders will be standbys", "expect", m.cfg.Expect, "voters", m.cfg.Voters)
	}
	if m.cfg.Dir == "" && m.cfg.Expect != 1 {
		m.log.Warn("no Dir: after a restart this process joins as a new member, and the group removes the former one after ReplaceAfter")
	}
}

// waitReason returns what forming waits for, with the error of an address that does not
// answer.
func (m *Member) waitReason() error {
	why := m.missingFounders()
	if err := m.candidates.err(); err != nil {
		return fmt.Errorf("%w; the last attempt to reach one: %w", why, err)
	}
	return why
}

// missingFounders returns what is still missing before the group can be formed.
func (m *Member) missingFounders() error {
	if p := m.accepted(); p != nil {
		err := fmt.Errorf("waiting for all %d founders to accept the group: start each with its own directory", len(p.GetFounders()))
		if m.forming.refusal != "" {
			err = fmt.Errorf("%w; %s", err, m.forming.refusal)
		}
		return err
	}
	switch members, err := m.formedGroup(); {
	case err != nil:
		return err
	case len(members) > 0:
		return fmt.Errorf("waiting for admission to the group of %s at %s; %s", members[0].GetName(), members[0].GetAdvertise(),
			cmp.Or(m.forming.refusal, "it has not answered yet"))
	case len(m.identity.Get().GetSeen()) > 0:
		return errors.New("it has found a group before, of which no member answers now: start one of them, " +
			"or with an empty directory form a new group, which restarts fences at 1")
	}
	found := 1 // this member
	var mismatches []string
	for _, meta := range m.candidates.processes() {
		switch {
		case m.mismatch(meta) != "":
			mismatches = append(mismatches, m.mismatch(meta))
		default:
			found++
		}
	}
	if m.cfg.Expect == 0 {
		return errors.New("found no group to join: start its members, or, to form a new one, set Expect to the number of its founders")
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
		if reply := m.answer(m.identity.Member, m.identity.Public(), proposal); !reply.GetAccepted() {
			return false, nil
		}
	}
	if m.isFormed(proposal) {
		return true, m.bootstrap(proposal)
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
			m.noteRefusal(f, reply.GetRefusal())
			return false, nil
		}
	}
	m.noteRefusal(nil, "")
	return true, m.bootstrap(proposal)
}

// isFormed reports whether a founder has found that all have accepted the proposal: it states
// that it belongs to the cluster. One that never returns does not hold up the others then.
func (m *Member) isFormed(p *wire.Proposal) bool {
	for _, f := range p.GetFounders() {
		found := m.candidates.process(f.GetMember())
		if found != nil && bytes.Equal(found.GetKey(), f.GetKey()) && bytes.Equal(found.GetCluster(), p.GetCluster()) && !unheeding(found, p) {
			return true
		}
	}
	return false
}

// noteRefusal keeps the reason for which the group is not formed yet, and logs a new one.
func (m *Member) noteRefusal(f *wire.Founder, reason string) {
	m.noteReason("founder refuses the group", "founder %s refuses", f, reason)
}

// noteNotAdmitted keeps the reason for which this member is not admitted yet, and logs a new
// one.
func (m *Member) noteNotAdmitted(f *wire.Founder, reason string) {
	m.noteReason("not admitted to the group yet", "not admitted yet by member %s", f, reason)
}

func (m *Member) noteReason(message, format string, f *wire.Founder, reason string) {
	text := ""
	if reason != "" {
		name := fmt.Sprintf("%s (%v at %s)", f.GetName(), wire.MemberID(f.GetMember()), f.GetAdvertise())
		text = fmt.Sprintf(format, name) + ": " + reason
	}
	if text != "" && text != m.forming.refusal {
		m.log.Info(message, "member", wire.MemberID(f.GetMember()), "name", f.GetName(), "reason", reason)
	}
	m.forming.refusal = text
}

// propose returns a proposal if enough founders are present and this member has the
// lowest ID among them.
func (m *Member) propose() *wire.Proposal {
	founders := []*wire.Founder{founderOf(m.meta())}
	for _, meta := range m.candidates.processes() {
		if len(meta.GetCluster()) == 0 && m.mismatch(meta) == "" && meta.GetMember() != m.identity.Member {
			founders = append(founders, founderOf(meta))
		}
	}
	if members, err := m.formedGroup(); err != nil || len(members) > 0 {
		return nil
	}
	slices.SortFunc(founders, func(x, y *wire.Founder) int { return cmp.Compare(x.GetMember(), y.GetMember()) })
	if m.cfg.Expect == 0 || len(m.identity.Get().GetSeen()) > 0 || len(founders) < m.cfg.Expect || founders[0].GetMember() != m.identity.Member {
		return nil
	}
	cluster := identity.RandomID()
	return &wire.Proposal{
		Cluster:  cluster[:],
		Founders: founders[:m.cfg.Expect],
		Voters:   m.wantedVoters(),

		FeatureLevel: m.commonLevel(founders[:m.cfg.Expect]),
	}
}

func founderOf(meta *wire.GossipMeta) *wire.Founder {
	return &wire.Founder{Member: meta.GetMember(), Name: meta.GetName(), Advertise: meta.GetAdvertise(), Key: meta.GetKey()}
}

func (m *Member) wantedVoters() uint32 { return uint32(min(m.cfg.Voters, m.cfg.Expect)) }

func (m *Member) requestAcceptance(ctx context.Context, f *wire.Founder, p *wire.Proposal) (*wire.FormReply, error) {
	if f.GetMember() == m.identity.Member {
		return &wire.FormReply{Accepted: true}, nil
	}
	addr := f.GetAdvertise()
	if found := m.candidates.process(f.GetMember()); found != nil {
		addr = found.GetAdvertise() // it may have moved since the proposal
	}
	to := transport.Target{Addr: addr, Member: f.GetMember(), Advertised: true}
	reply, err := m.forming.send(ctx, to, &wire.FormRequest{Proposal: p, Candidate: m.meta()})
	if err == nil && (reply.GetMember() != f.GetMember() || !bytes.Equal(reply.GetCandidate().GetKey(), f.GetKey())) {
		err = fmt.Errorf("member %v answers at %s instead", wire.MemberID(reply.GetMember()), addr)
	}
	if err == nil && reply.GetAccepted() && unheeding(reply.GetCandidate(), p) {
		return &wire.FormReply{Refusal: unheedingReason}, nil
	}
	return reply, err
}

// bootstrap makes this member a member of the new group. It writes the log before the
// identity: an identity with a cluster but no log is a member that has lost its state,
// whereas a log without a cluster only repeats the last round of forming.
func (m *Member) bootstrap(p *wire.Proposal) error {
	m.forming.changing.Acquire()
	defer m.forming.changing.Release()
	conf := &raftpb.ConfState{}
	for i, f := range p.GetFounders() {
		if i < int(p.GetVoters()) {
			conf.Voters = append(conf.Voters, f.GetMember())
		} else {
			conf.Learners = append(conf.Learners, f.GetMember())
		}
	}
	if !m.raftLog.Bootstrapped() {
		state := m.cfg.FirstState(max(p.GetFeatureLevel(), lowestLevel))
		if err := m.raftLog.BootstrapWith(conf, state, core.FirstDigest(state)); err != nil {
			return err
		}
	}
	for _, f := range p.GetFounders() {
		m.roster.SetFounder(f) // synced with the identity
	}
	if err := m.identity.Save(func(r *wire.Identity) {
		r.Cluster, r.Accepted, r.Refused = p.GetCluster(), nil, nil
	}); err != nil {
		return err
	}
	m.first = p.GetFounders()[0].GetMember() == m.identity.Member
	m.log.Info("group formed", "cluster", m.identity.Cluster(), "members", len(p.GetFounders()), "level", max(p.GetFeatureLevel(), lowestLevel))
	return nil
}
