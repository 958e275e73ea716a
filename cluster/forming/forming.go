// Package forming finds the group that a process belongs to, or forms a new one: once, by unanimous agreement of its
// founders. search.go finds them, acceptance.go answers their proposals. It is a seam, not an API: only package
// cluster uses it.
//
// The founder with the lowest ID proposes. Each founder accepts at most one proposal and
// syncs its acceptance to disk before it answers. A founder that has the acceptances of
// all starts as a member. There is no coordinator: each founder that has accepted
// requests the acceptances of all others itself, so a crash only delays.
//
// A refusal may be final: it is on the disk of the founder that refuses, so the proposal
// can never be accepted by all, and the others may revoke their acceptances.
package forming

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// maxRefused bounds the final refusals that a member stores, its own and those of other
// founders that made it revoke an acceptance. Further ones of its own are not final.
const maxRefused = 64

const (
	// formingRetry is the pause between two rounds, unless the candidates change.
	formingRetry = 250 * time.Millisecond
	// formingReport is the time between two log lines about what forming waits for.
	formingReport = 10 * time.Second
)

// Config is what a Former needs of its process.
type Config struct {
	Expect, Voters int      // as in cluster.Config
	Join           []string // likewise
	Ephemeral      bool     // this process has no directory
	Level          uint32   // the highest feature level that this process supports
	FirstState     func(level uint32) []wire.Change

	Identity *identity.Identity
	Log      *raftlog.Log
	Roster   *roster.Roster
	Logger   *slog.Logger
	Port     Port
	Meta     func() *wire.GossipMeta                                       // what this process states about itself
	Admit    func(sender *wire.GossipMeta, ephemeral bool) *wire.FormReply // answers a process that asks for its admission
	Routine  func(name string, run func())                                 // starts a goroutine, for whose end the process waits
	Lifetime context.Context                                               // of the process
	Stopped  func() error                                                  // why it is done
}

// Port is how a Former reaches other processes.
type Port interface {
	// Joined states the cluster that this process belongs to from now on.
	Joined(cluster wire.ID)
	Form(ctx context.Context, to transport.Target, r *wire.FormRequest) (*wire.FormReply, error)
	// Resolves reports whether the host of an address is a name, and Resolve returns its addresses.
	Resolves(addr string) bool
	Resolve(ctx context.Context, name string) ([]transport.Target, error)
}

// Former finds the group that a process belongs to, or forms a new one, and answers others that do.
type Former struct {
	cfg        Config
	candidates *candidates
	failures   transport.JoinFailures
	changing   wait.Lock   // held while the identity changes
	acceptance wait.Signal // set when a proposal is accepted
	refusal    string      // of a founder, in the last round; owned by Find
	first      bool        // this process is the first founder of a group that it has just formed
}

// New returns a Former that has not searched yet.
func New(cfg Config) *Former {
	f := &Former{cfg: cfg, candidates: newCandidates(cfg.Meta().GetAdvertise(), cfg.Join), acceptance: wait.NewSignal()}
	f.candidates.setNames(cfg.Port.Resolves)
	return f
}

// IsFirst reports whether this process is the first founder of a group that it has just formed.
func (f *Former) IsFirst() bool { return f.first }

// Find returns once this member belongs to a group.
func (f *Former) Find(ctx context.Context) error {
	if !f.cfg.Identity.Cluster().IsZero() {
		if !f.cfg.Log.Bootstrapped() && !f.cfg.Identity.Get().GetJoined() {
			return fmt.Errorf("%w: the member belongs to cluster %s and has no log", core.ErrCorrupt, f.cfg.Identity.Cluster())
		}
		f.cfg.Port.Joined(f.cfg.Identity.Cluster())
		return nil
	}
	f.warnConfig()
	searching, stop := context.WithCancel(f.cfg.Lifetime)
	defer stop()
	f.cfg.Routine("search", func() { f.search(searching) })
	reported := time.Now()
	for {
		found, err := f.formOrJoin(ctx)
		if err != nil {
			return err
		}
		if found {
			f.cfg.Port.Joined(f.cfg.Identity.Cluster())
			return nil
		}
		if time.Since(reported) >= formingReport {
			f.cfg.Logger.Info("waiting to form or find the group", "reason", f.waitReason())
			reported = time.Now()
		}
		retry := time.NewTimer(formingRetry)
		select {
		case <-ctx.Done():
			retry.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), f.waitReason())
		case <-f.cfg.Lifetime.Done():
			retry.Stop()
			return f.cfg.Stopped()
		case <-f.candidates.changed:
			retry.Stop()
		case <-f.acceptance:
			retry.Stop()
		case <-retry.C:
		}
	}
}

// formOrJoin is one round. It reports whether this member belongs to a group.
func (f *Former) formOrJoin(ctx context.Context) (found bool, err error) {
	if found, err = f.form(ctx); found || err != nil {
		return found, err
	}
	return f.joinGroup(ctx)
}

// warnConfig warns of valid configurations that are probably mistakes.
func (f *Former) warnConfig() {
	if f.cfg.Expect > f.cfg.Voters {
		f.cfg.Logger.Warn("Expect is larger than Voters: some founders will be standbys", "expect", f.cfg.Expect, "voters", f.cfg.Voters)
	}
	if f.cfg.Ephemeral && f.cfg.Expect != 1 {
		f.cfg.Logger.Warn("no Dir: after a restart this process joins as a new member, and the group removes the former one after ReplaceAfter")
	}
}

// waitReason returns what forming waits for, with the error of an address that does not
// answer.
func (f *Former) waitReason() error {
	why := f.missingFounders()
	if err := f.candidates.err(); err != nil {
		return fmt.Errorf("%w; the last attempt to reach one: %w", why, err)
	}
	return why
}

// missingFounders returns what is still missing before the group can be formed.
func (f *Former) missingFounders() error {
	if p := f.accepted(); p != nil {
		err := fmt.Errorf("waiting for all %d founders to accept the group: start each with its own directory", len(p.GetFounders()))
		if f.refusal != "" {
			err = fmt.Errorf("%w; %s", err, f.refusal)
		}
		return err
	}
	switch members, err := f.formedGroup(); {
	case err != nil:
		return err
	case len(members) > 0:
		return fmt.Errorf("waiting for admission to the group of %s at %s; %s", members[0].GetName(), members[0].GetAdvertise(),
			cmp.Or(f.refusal, "it has not answered yet"))
	case len(f.cfg.Identity.Get().GetSeen()) > 0:
		return errors.New("it has found a group before, of which no member answers now: start one of them, " +
			"or with an empty directory form a new group, which restarts fences at 1")
	}
	found := 1 // this member
	var mismatches []string
	for _, meta := range f.candidates.processes() {
		switch {
		case f.mismatch(meta) != "":
			mismatches = append(mismatches, f.mismatch(meta))
		default:
			found++
		}
	}
	if f.cfg.Expect == 0 {
		return errors.New("found no group to join: start its members, or, to form a new one, set Expect to the number of its founders")
	}
	if len(mismatches) > 0 {
		return fmt.Errorf("found %d of %d founders, and others with another configuration: %s: Expect and Voters must be the same everywhere",
			found, f.cfg.Expect, strings.Join(mismatches, "; "))
	}
	return fmt.Errorf("found %d of %d founders: start the others, with one of their addresses in Join", found, f.cfg.Expect)
}

// mismatch describes the setting in which a founder differs from this member; "": none.
func (f *Former) mismatch(meta *wire.GossipMeta) string {
	founder := fmt.Sprintf("%s (%v at %s)", meta.GetName(), wire.MemberID(meta.GetMember()), meta.GetAdvertise())
	switch {
	case int(meta.GetExpect()) != f.cfg.Expect:
		return fmt.Sprintf("%s expects %d founders, this member %d", founder, meta.GetExpect(), f.cfg.Expect)
	case meta.GetVoters() != 0 && int(meta.GetVoters()) != f.cfg.Voters: // 0: a version that does not gossip it
		return fmt.Sprintf("%s expects %d voters, this member %d", founder, meta.GetVoters(), f.cfg.Voters)
	}
	return ""
}

// form is one round of forming. It reports whether the group is formed.
func (f *Former) form(ctx context.Context) (formed bool, err error) {
	proposal := f.accepted()
	if proposal == nil {
		if proposal = f.propose(); proposal == nil {
			return false, nil
		}
		if reply := f.answer(f.cfg.Identity.Member, f.cfg.Identity.Public(), proposal); !reply.GetAccepted() {
			return false, nil
		}
	}
	if f.isFormed(proposal) {
		return true, f.bootstrap(proposal)
	}
	for _, founder := range proposal.GetFounders() {
		reply, err := f.requestAcceptance(ctx, founder, proposal)
		switch {
		case err != nil:
			f.cfg.Logger.Debug("founder does not answer", "member", wire.MemberID(founder.GetMember()), "name", founder.GetName(), "error", err)
			return false, nil
		case reply.GetAccepted():
		case reply.GetFinal():
			f.cfg.Logger.Warn("founder refuses the group finally", "member", wire.MemberID(founder.GetMember()), "name", founder.GetName(), "reason", reply.GetRefusal())
			return false, f.revoke(proposal)
		default:
			f.noteRefusal(founder, reply.GetRefusal())
			return false, nil
		}
	}
	f.noteRefusal(nil, "")
	return true, f.bootstrap(proposal)
}

// isFormed reports whether a founder has found that all have accepted the proposal: it states
// that it belongs to the cluster. One that never returns does not hold up the others then.
func (f *Former) isFormed(p *wire.Proposal) bool {
	for _, founder := range p.GetFounders() {
		found := f.candidates.process(founder.GetMember())
		if found != nil && bytes.Equal(found.GetKey(), founder.GetKey()) && bytes.Equal(found.GetCluster(), p.GetCluster()) && !unheeding(found, p) {
			return true
		}
	}
	return false
}

// noteRefusal keeps the reason for which the group is not formed yet, and logs a new one.
func (f *Former) noteRefusal(founder *wire.Founder, reason string) {
	f.noteReason("founder refuses the group", "founder %s refuses", founder, reason)
}

// noteNotAdmitted keeps the reason for which this member is not admitted yet, and logs a new
// one.
func (f *Former) noteNotAdmitted(founder *wire.Founder, reason string) {
	f.noteReason("not admitted to the group yet", "not admitted yet by member %s", founder, reason)
}

func (f *Former) noteReason(message, format string, founder *wire.Founder, reason string) {
	text := ""
	if reason != "" {
		name := fmt.Sprintf("%s (%v at %s)", founder.GetName(), wire.MemberID(founder.GetMember()), founder.GetAdvertise())
		text = fmt.Sprintf(format, name) + ": " + reason
	}
	if text != "" && text != f.refusal {
		f.cfg.Logger.Info(message, "member", wire.MemberID(founder.GetMember()), "name", founder.GetName(), "reason", reason)
	}
	f.refusal = text
}

// propose returns a proposal if enough founders are present and this member has the
// lowest ID among them.
func (f *Former) propose() *wire.Proposal {
	founders := []*wire.Founder{wire.FounderOf(f.cfg.Meta())}
	for _, meta := range f.candidates.processes() {
		if len(meta.GetCluster()) == 0 && f.mismatch(meta) == "" && meta.GetMember() != f.cfg.Identity.Member {
			founders = append(founders, wire.FounderOf(meta))
		}
	}
	if members, err := f.formedGroup(); err != nil || len(members) > 0 {
		return nil
	}
	slices.SortFunc(founders, func(x, y *wire.Founder) int { return cmp.Compare(x.GetMember(), y.GetMember()) })
	if f.cfg.Expect == 0 || len(f.cfg.Identity.Get().GetSeen()) > 0 || len(founders) < f.cfg.Expect || founders[0].GetMember() != f.cfg.Identity.Member {
		return nil
	}
	cluster := identity.RandomID()
	return &wire.Proposal{
		Cluster:  cluster[:],
		Founders: founders[:f.cfg.Expect],
		Voters:   f.wantedVoters(),

		FeatureLevel: f.commonLevel(founders[:f.cfg.Expect]),
	}
}

func (f *Former) wantedVoters() uint32 { return uint32(min(f.cfg.Voters, f.cfg.Expect)) }

func (f *Former) requestAcceptance(ctx context.Context, founder *wire.Founder, p *wire.Proposal) (*wire.FormReply, error) {
	if founder.GetMember() == f.cfg.Identity.Member {
		return &wire.FormReply{Accepted: true}, nil
	}
	addr := founder.GetAdvertise()
	if found := f.candidates.process(founder.GetMember()); found != nil {
		addr = found.GetAdvertise() // it may have moved since the proposal
	}
	to := transport.Target{Addr: addr, Member: founder.GetMember(), Advertised: true}
	reply, err := f.cfg.Port.Form(ctx, to, &wire.FormRequest{Proposal: p, Candidate: f.cfg.Meta()})
	if err == nil && (reply.GetMember() != founder.GetMember() || !bytes.Equal(reply.GetCandidate().GetKey(), founder.GetKey())) {
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
func (f *Former) bootstrap(p *wire.Proposal) error {
	f.changing.Acquire()
	defer f.changing.Release()
	conf := &raftpb.ConfState{}
	for i, founder := range p.GetFounders() {
		if i < int(p.GetVoters()) {
			conf.Voters = append(conf.Voters, founder.GetMember())
		} else {
			conf.Learners = append(conf.Learners, founder.GetMember())
		}
	}
	if !f.cfg.Log.Bootstrapped() {
		state := f.cfg.FirstState(max(p.GetFeatureLevel(), lowestLevel))
		if err := f.cfg.Log.BootstrapWith(conf, state, core.FirstDigest(state)); err != nil {
			return err
		}
	}
	for _, founder := range p.GetFounders() {
		f.cfg.Roster.SetFounder(founder) // synced with the identity
	}
	if err := f.cfg.Identity.Save(func(r *wire.Identity) {
		r.Cluster, r.Accepted, r.Refused = p.GetCluster(), nil, nil
	}); err != nil {
		return err
	}
	f.first = p.GetFounders()[0].GetMember() == f.cfg.Identity.Member
	f.cfg.Logger.Info("group formed", "cluster", f.cfg.Identity.Cluster(), "members", len(p.GetFounders()), "level", max(p.GetFeatureLevel(), lowestLevel))
	return nil
}
