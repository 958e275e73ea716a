package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// reporter is the part of member 1 in the check process, without its group. Member 3 crashes.
type reporter struct {
	*crashReports
	Commands
	status core.Status
	level  uint32
	held   []fact.MemberLiveness
	did    []string // what it has sent and submitted
	lost   bool     // what it sends
}

var crashedProcess = crash.Process{Member: 3, Boot: 5}

func newReporter(t *testing.T) *reporter {
	r := &reporter{level: wire.LevelProcess, held: []fact.MemberLiveness{{Member: 1, Boot: 9, Registered: true}, {Member: 3, Boot: 5, Registered: true}}}
	r.status = core.Status{Leader: 2, Term: 7, Registered: true, Membership: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	r.crashReports = &crashReports{core: r, crashReportsConfig: crashReportsConfig{
		self: 1, boot: 9, commands: r, log: slog.New(slog.DiscardHandler), lifetime: t.Context(),
		post: func(run func(*core.Core)) { run(nil) }, routine: func(_ string, run func()) { run() },
		execute: func(context.Context, []byte) (*wire.Reply, error) { return new(wire.Reply), nil },
		send: func(to uint64, f *wire.Frame) bool {
			if !r.lost {
				r.did = append(r.did, fmt.Sprintf("to %d: %d", to, len(f.GetCrashEvidence().GetProcesses())))
			}
			return !r.lost
		},
	}}
	r.evidence = crash.NewEvidence(r.consider)
	return r
}

func (r *reporter) Status() core.Status   { return r.status }
func (r *reporter) Machine() core.Machine { return heldBy{nil, r} }

// heldBy is the machine, as far as crashReports asks it.
type heldBy struct {
	core.Machine
	*reporter
}

func (r heldBy) Level() (uint32, uint32)         { return r.level, r.level }
func (r heldBy) Liveness() []fact.MemberLiveness { return r.held }

// ReportProcess has the group record the report at once.
func (r *reporter) ReportProcess(c fact.CrashReport) []byte {
	r.did = append(r.did, fmt.Sprintf("%d.%d crashed %t in %d", c.Member, c.Boot, c.Crashed, c.Term))
	for i := range r.held {
		if r.held[i].Member == c.Member {
			r.held[i].Crashed = c.Crashed
		}
	}
	return nil
}

// crash has member 3 crash, as this one sees it.
func (r *reporter) crash() {
	closed := r.connect()
	closed(true)
	r.evidence.Dialed(3, true)
}

func (r *reporter) connect() (closed func(endedByHost bool)) {
	return r.evidence.Opened(crashedProcess, wire.ID{3}, crash.Outbound)
}

func (r *reporter) lead() { r.status.Leader, r.status.Leads = 1, true }

// hear takes what another member states.
func (r *reporter) hear(from uint64, processes ...crash.Process) {
	f := new(wire.CrashEvidence)
	for _, p := range processes {
		f.Processes = append(f.Processes, &wire.CrashedProcess{Member: p.Member, Boot: p.Boot})
	}
	r.receive(from, f)
}

const crashedReport = "3.5 crashed true in 7"

var crashReportScenes = map[string]struct {
	run  func(r *reporter)
	want string
}{
	"a voter sends its evidence":     {func(r *reporter) { r.crash() }, "to 2: 1"},
	"once":                           {func(r *reporter) { r.crash(); r.consider() }, "to 2: 1"},
	"again after a while":            {func(r *reporter) { r.crash(); time.Sleep(resendEvidence); r.consider() }, "to 2: 1, to 2: 1"},
	"to the next leader":             {func(r *reporter) { r.crash(); r.status.Leader, r.status.Term = 4, 8; r.consider() }, "to 2: 1, to 4: 1"},
	"to the leader of the next term": {func(r *reporter) { r.crash(); r.status.Term = 8; r.consider() }, "to 2: 1, to 2: 1"},
	"when there is one":              {func(r *reporter) { r.status.Leader = 0; r.crash(); r.status.Leader = 2; r.consider() }, "to 2: 1"},
	"when it is connected":           {func(r *reporter) { r.lost = true; r.crash(); r.lost = false; r.consider() }, "to 2: 1"},
	"and withdraws it":               {func(r *reporter) { r.crash(); r.connect(); r.consider() }, "to 2: 1, to 2: 0"},
	"and what has expired":           {func(r *reporter) { r.crash(); time.Sleep(crash.Lifetime); r.consider(); r.consider() }, "to 2: 1, to 2: 0"},
	"not of what the group knows":    {func(r *reporter) { r.held[1].Crashed = true; r.crash() }, ""},
	"nor of what has deregistered":   {func(r *reporter) { r.held[1].Registered = false; r.crash() }, ""},
	"nor of an earlier start":        {func(r *reporter) { r.held[1].Boot++; r.crash() }, ""},
	"not below its level":            {func(r *reporter) { r.level--; r.crash() }, ""},
	"not before it is registered":    {func(r *reporter) { r.status.Registered = false; r.crash() }, ""},
	"a standby sends nothing": {func(r *reporter) {
		r.status.Membership = &raftpb.ConfState{Voters: []uint64{2, 3}, Learners: []uint64{1}}
		r.crash()
	}, ""},
	"an outgoing voter does": {func(r *reporter) {
		r.status.Membership = &raftpb.ConfState{Voters: []uint64{2, 3}, VotersOutgoing: []uint64{1, 2, 3}}
		r.crash()
	}, "to 2: 1"},
	"a leader reports what a majority has": {func(r *reporter) { r.lead(); r.crash(); r.hear(2, crashedProcess) }, crashedReport},
	"not what it has alone":                {func(r *reporter) { r.lead(); r.crash() }, ""},
	"nor another one alone":                {func(r *reporter) { r.lead(); r.consider(); r.hear(2, crashedProcess) }, ""},
	"nor of different starts":              {func(r *reporter) { r.lead(); r.crash(); r.hear(2, crash.Process{Member: 3, Boot: 4}) }, ""},
	"nor of what it is connected to": {func(r *reporter) {
		r.status.Membership.Voters = []uint64{1, 2, 3, 4, 5}
		r.lead()
		r.connect()
		r.consider()
		r.hear(2, crashedProcess)
		r.hear(4, crashedProcess)
		r.hear(5, crashedProcess)
	}, ""},
	"nor of itself": {func(r *reporter) {
		r.lead()
		r.consider()
		r.hear(2, crash.Process{Member: 1, Boot: 9})
		r.hear(3, crash.Process{Member: 1, Boot: 9})
	}, ""},
	"nor what the group knows":            {func(r *reporter) { r.held[1].Crashed = true; r.lead(); r.crash(); r.hear(2, crashedProcess) }, ""},
	"nor what was stated in another term": {func(r *reporter) { r.lead(); r.consider(); r.hear(2, crashedProcess); r.status.Term = 8; r.crash() }, ""},
	"nor below its level":                 {func(r *reporter) { r.level--; r.lead(); r.crash(); r.hear(2, crashedProcess) }, ""},
	"a follower counts nothing":           {func(r *reporter) { r.consider(); r.hear(2, crashedProcess); r.lead(); r.crash() }, ""},
	"a leader takes back what was wrong":  {func(r *reporter) { r.held[1].Crashed = true; r.lead(); r.connect(); r.consider() }, "3.5 crashed false in 7"},
	"also of itself":                      {func(r *reporter) { r.held[0].Crashed = true; r.lead(); r.consider() }, "1.9 crashed false in 7"},
	"not of what it is not connected to":  {func(r *reporter) { r.held[1].Crashed = true; r.lead(); r.consider() }, ""},
}

func TestCrashReports(t *testing.T) {
	for name, test := range crashReportScenes {
		synctest.Test(t, func(t *testing.T) {
			r := newReporter(t)
			test.run(r)
			if got := strings.Join(r.did, ", "); got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		})
	}
}
