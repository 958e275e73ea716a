package cluster

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// crashReports is this member's part in the check process. A voter sends the leader its evidence of crashed processes when
// that changes, when the leader does, and again while the group has not recorded it. The leader counts the voters, and
// submits a report for each process that a majority takes for crashed. It is owned by the replica's loop, like its core.
type crashReports struct {
	crashReportsConfig
	core replicated // set before the loop starts

	votes  crash.Votes
	leader struct{ id, term uint64 } // for which votes are, or to which evidence was sent
	sent   []crash.Process
	sentAt time.Time
	under  map[uint64]bool // the members of which a report is under way
}

// replicated is the core as crashReports uses it.
type replicated interface {
	Status() core.Status
	Machine() core.Machine
}

// crashReportsConfig is what crashReports needs of its member. What is in it may be used on any goroutine.
type crashReportsConfig struct {
	self, boot uint64
	evidence   *crash.Evidence
	execute    func(ctx context.Context, command []byte) (*wire.Reply, error)
	send       func(member uint64, f *wire.Frame) bool
	post       func(run func(*core.Core))
	commands   Commands
	routine    func(name string, run func())
	log        *slog.Logger
	lifetime   context.Context
}

// resendEvidence is after how long a voter sends its evidence again. It lasts longer than that at the leader.
const resendEvidence = crash.Lifetime / 4

// consider sends what is due to the leader, or submits what is due if this member leads. It runs at each heartbeat interval
// too.
func (r *crashReports) consider() {
	s := r.core.Status()
	if level, _ := r.core.Machine().Level(); level < wire.LevelProcess || !s.Registered {
		return // other members may not know the frame
	}
	if s.Leader != r.leader.id || s.Term != r.leader.term {
		r.leader.id, r.leader.term = s.Leader, s.Term
		r.votes.Reset()
		r.sent = nil
	}
	own := r.evidence.Crashed()
	if s.Leads {
		r.lead(own, s)
		return
	}
	if len(own) > 0 {
		own = unrecorded(own, r.core.Machine().Liveness())
	}
	same := slices.Equal(own, r.sent)
	if s.Leader == 0 || same && (len(own) == 0 || time.Since(r.sentAt) < resendEvidence) || !votes(s, r.self) {
		return
	}
	frame := new(wire.CrashEvidence)
	for _, p := range own {
		frame.Processes = append(frame.Processes, &wire.CrashedProcess{Member: p.Member, Boot: p.Boot})
	}
	if r.send(s.Leader, &wire.Frame{Body: &wire.Frame_CrashEvidence{CrashEvidence: frame}}) {
		r.sent, r.sentAt = own, time.Now()
	}
}

// votes reports whether a member votes, in one of the halves of a joint configuration.
func votes(s core.Status, member uint64) bool {
	return slices.Contains(s.Membership.GetVoters(), member) || slices.Contains(s.Membership.GetVotersOutgoing(), member)
}

// unrecorded returns the processes that the group has registered and does not know to have crashed.
func unrecorded(of []crash.Process, held []fact.MemberLiveness) (list []crash.Process) {
	for _, p := range of {
		if slices.ContainsFunc(held, func(h fact.MemberLiveness) bool {
			return h.Member == p.Member && h.Boot == p.Boot && h.Registered && !h.Crashed
		}) {
			list = append(list, p)
		}
	}
	return list
}

// lead submits the reports that are due. A connection with the process that has proved its key contradicts all voters: then
// it runs, and what was recorded otherwise was wrong.
func (r *crashReports) lead(own []crash.Process, s core.Status) {
	now := time.Now()
	r.votes.Receive(r.self, own, now)
	held := r.core.Machine().Liveness()
	for _, p := range unrecorded(r.votes.Crashed(s.Membership.GetVoters(), s.Membership.GetVotersOutgoing(), now), held) {
		if !r.runs(p) {
			r.report(fact.CrashReport{Member: p.Member, Boot: p.Boot, Term: s.Term, Crashed: true})
		}
	}
	for _, h := range held {
		if p := (crash.Process{Member: h.Member, Boot: h.Boot}); h.Crashed && h.Registered && r.runs(p) {
			r.report(fact.CrashReport{Member: p.Member, Boot: p.Boot, Term: s.Term})
		}
	}
}

func (r *crashReports) runs(p crash.Process) bool {
	return p == crash.Process{Member: r.self, Boot: r.boot} || r.evidence.Connected(p)
}

// receive takes what a member has sent of its evidence. Only a leader counts it.
func (r *crashReports) receive(from uint64, f *wire.CrashEvidence) {
	s := r.core.Status()
	if !s.Leads || s.Term != r.leader.term {
		return // consider has not seen the term: it is sent again
	}
	var processes []crash.Process
	for _, p := range f.GetProcesses() {
		processes = append(processes, crash.Process{Member: p.GetMember(), Boot: p.GetBoot()})
	}
	r.votes.Receive(from, processes, time.Now())
	r.consider()
}

// report submits a report. There is one under way about a member; what is due afterwards is submitted at the next tick.
func (r *crashReports) report(c fact.CrashReport) {
	if r.under[c.Member] {
		return
	}
	if r.under == nil {
		r.under = make(map[uint64]bool)
	}
	r.under[c.Member] = true
	r.routine("process check", func() {
		_, err := r.execute(r.lifetime, r.commands.ReportProcess(c))
		r.post(func(*core.Core) {
			delete(r.under, c.Member)
			if err == nil && slices.ContainsFunc(r.core.Machine().Liveness(), func(h fact.MemberLiveness) bool {
				return h.Member == c.Member && h.Boot == c.Boot && h.Crashed == c.Crashed
			}) {
				logCrash(r.log, c)
			}
		})
	})
}
