package replica

import (
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// Acknowledged is what this member knows of the entries that the members have acknowledged, itself included, and the
// processes that acknowledge them. It may be used on any goroutine.
type Acknowledged struct {
	durable atomic.Pointer[core.Position] // on this member's disk, which the hello reports

	mu        sync.Mutex
	known     core.Acknowledged       // guarded by mu
	processes map[uint64]core.Process // guarded by mu; with the present inbound connections
}

// load continues with what an earlier process has recorded.
func (a *Acknowledged) load(peers []*wire.Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes = make(map[uint64]core.Process)
	for _, p := range peers {
		a.known.Load(p.GetMember(), core.Position{Term: p.GetAcknowledgedTerm(), Index: p.GetAcknowledgedIndex()})
	}
}

// Connected takes the process at the other end of a connection that has just been accepted.
func (a *Acknowledged) Connected(p core.Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes[p.Member] = p
}

func (a *Acknowledged) process(member uint64) core.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.processes[member]
}

// learn records what an admissible message from a process acknowledges.
func (a *Acknowledged) learn(c *core.Core, from core.Process, message *raftpb.Message) {
	if p, ok := c.Acknowledges(message); ok && from.Member != 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.known.Add(from, p)
	}
}

// applied records that a process has applied the entries up to index.
func (a *Acknowledged) applied(from core.Process, index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from.Member != 0 {
		a.known.AddApplied(from, index)
	}
}

func (a *Acknowledged) commit(p core.Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Commit(p)
}

func (a *Acknowledged) unsaved(save func(member uint64, p core.Position)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Unsaved(save)
}

// Forget forgets a member that was removed.
func (a *Acknowledged) Forget(member uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Forget(member)
	delete(a.processes, member)
}

// Admit refuses a process, whose log is durable up to a position, if it has forgotten entries which its member acknowledged: the error is a
// [transport.RefusedError]. The process could help to elect a leader that has forgotten them too.
func (a *Acknowledged) Admit(p transport.Peer, durable core.Position) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	process := core.Process{Member: p.Member, Boot: p.Boot, Incarnation: p.Incarnation}
	if err := a.known.Check(process, durable); err != nil {
		return &transport.RefusedError{Reason: transport.ReasonForgot, Detail: err.Error()}
	}
	return nil
}

// Durable returns how far the log is on the disk. What this member acknowledges is durable before,
// so a hello made afterwards never reports less.
func (a *Acknowledged) Durable() (term, index uint64) {
	p := a.durable.Load()
	return p.Term, p.Index
}

// noteDurable is for the time before the loop runs.
func (a *Acknowledged) noteDurable(log *raftlog.Log) {
	p := new(core.Position)
	p.Term, p.Index = log.Durable()
	a.durable.Store(p)
}

// progressed records how far this member's disk has come, and the commit index of a
// leader. It runs on the loop's goroutine before the messages that depend on it are sent.
func (a *Acknowledged) progressed(c *core.Core) {
	if p := c.Durable(); p != *a.durable.Load() {
		a.durable.Store(&p)
	}
	if s := c.Status(); s.Leads {
		a.commit(core.Position{Term: s.Term, Index: s.Commit})
	}
}

// acknowledgedTicks is after how many ticks changed acknowledgments are recorded on disk. A
// crash of this member loses the latest ones, of which only other peers then know.
const acknowledgedTicks = 10
