package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// driver drives a machine as one member would: each call under the next
// sequence number, the floor close behind.
type driver struct {
	tb    testing.TB
	m     *Machine
	disk  disk
	inc   wire.ID
	index uint64
	time  int64
	seq   uint64
}

func newDriver(tb testing.TB) *driver {
	d := &driver{tb: tb, m: New(), disk: disk{}, inc: wire.ID{1}}
	d.do(registerCommand(1, MaxTTL))
	return d
}

// newDriverAt is newDriver in a group of that feature level.
func newDriverAt(tb testing.TB, level uint32) *driver {
	tb.Helper()
	d := newDriver(tb)
	register := registerCommand(1, MaxTTL)
	register.GetRegister().Boot, register.GetRegister().FeatureLevel = 2, level
	token := makeID("token")
	register.GetRegister().Tokens = [][]byte{token[:]}
	d.inc, d.seq = wire.ID{2}, 0
	d.want(wire.Code_OK, d.do(register))
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: level}}}))
	return d
}

// do applies the commands as one entry and returns the outcomes.
func (d *driver) do(commands ...*wire.Command) []fact.Outcome {
	d.tb.Helper()
	return d.execute(commands...).Outcomes
}

// execute applies the commands as one entry.
func (d *driver) execute(commands ...*wire.Command) fact.Result {
	d.tb.Helper()
	s := &wire.Submission{Incarnation: d.inc[:], Floor: d.seq, Member: d.member(commands)}
	for _, c := range commands {
		d.seq++
		s.Calls = append(s.Calls, &wire.Call{Seq: d.seq, Command: must(proto.Marshal(c))})
	}
	return d.submit(s)
}

// member returns the member that submits the commands: that of the incarnation, or the
// one that they register.
func (d *driver) member(commands []*wire.Command) uint64 {
	if inc := d.m.incarnation(d.inc); inc != nil {
		return inc.member
	}
	for _, c := range commands {
		if r := c.GetRegister(); r != nil {
			return r.GetMember()
		}
	}
	return 0
}

func (d *driver) submit(s ...*wire.Submission) fact.Result {
	d.tb.Helper()
	d.index++
	r := d.m.Apply(d.index, 1, must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: d.time, Submissions: s})))
	if err := d.disk.write(r.Changes); err != nil {
		d.tb.Fatal(err)
	}
	return r
}

// want fails the test unless the last of the outcomes has the code.
func (d *driver) want(code wire.Code, outcomes []fact.Outcome) *wire.Reply {
	d.tb.Helper()
	r := outcomes[len(outcomes)-1].Reply
	if r.Code != code {
		d.tb.Fatalf("got %v, want %v", r, code)
	}
	return r
}

// registerCommand registers the first start of a member.
func registerCommand(member uint64, ttl int64) *wire.Command {
	token := makeID("token")
	return &wire.Command{Op: &wire.Command_Register{Register: &wire.Register{Member: member, Boot: 1, Ttl: ttl, NextToken: token[:]}}}
}

func openCommand(id wire.ID, ttl, delay int64) *wire.Command {
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{Id: id[:], Ttl: ttl, LockDelay: delay}}}
}

func closeCommand(id wire.ID) *wire.Command {
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id[:]}}}
}

func lockCommand(name string, session wire.ID, handle uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: session[:], Handle: handle, Wait: true}}}
}

func unlockCommand(name string, session wire.ID, handle, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Name: name, Session: session[:], Handle: handle, Fence: fence}}}
}

func withdrawCommand(inc wire.ID, seq uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Withdraw{Withdraw: &wire.Withdraw{Incarnation: inc[:], Seq: seq}}}
}
