package sim

import (
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/raftlog"
)

// What a process does with the further groups. It stands for cluster/groups.go, whose replicas have goroutines of their own:
// same steps, same order.

// hostedGroups is the further groups of which a process has a log.
type hostedGroups struct {
	logs   map[uint32]*raftlog.Log // by number
	erased uint32                  // up to this number no other log is missing than that of a deleted group
	list   *fact.Directory         // as of the last settle, or the one that is due
}

// openGroups opens the logs that the directory has, and starts what is in them.
func (proc *process) openGroups() {
	g := &proc.hosted
	g.logs = make(map[uint32]*raftlog.Log)
	var err error
	if g.erased, err = raftlog.Erased(proc.log); err != nil {
		proc.sim.fail("member %d: %v", proc.n, err)
	}
	numbers, err := raftlog.Groups(proc.log)
	if err != nil {
		proc.sim.fail("member %d: %v", proc.n, err)
	}
	for _, number := range numbers {
		proc.openGroup(number)
	}
	g.list = proc.core.Machine().Directory()
	proc.settle()
}

func (proc *process) openGroup(number uint32) {
	log, err := proc.log.OpenGroup(number)
	if err != nil {
		proc.sim.fail("member %d: open the log of group %d: %v", proc.n, number, err)
	}
	proc.hosted.logs[number] = log
}

// settleLater has the process settle when the list of groups has changed.
func (proc *process) settleLater() {
	if proc.of != nil || proc.hosted.logs == nil || proc.tainted {
		return
	}
	if list := proc.core.Machine().Directory(); list != proc.hosted.list {
		before := proc.hosted.list
		if proc.hosted.list = list; before.Created == 0 && list.Created == 0 {
			return // no group has ever been created
		}
		proc.after(time.Duration(proc.sim.extraRNG.Int64N(int64(20*time.Millisecond))), proc.settle)
	}
}

// settle is Groups.settle.
func (proc *process) settle() {
	list := proc.core.Machine().Directory()
	for _, number := range proc.hosted.numbers() {
		if m := proc.part(number); list.Dropped(number) && m.process != nil {
			m.end()
		}
	}
	proc.startListed(list)
	for _, number := range proc.hosted.numbers() {
		if !list.Dropped(number) {
			continue
		}
		if err := raftlog.Erase(proc.hosted.logs[number], list.Created); err != nil {
			proc.sim.fail("member %d: erase the log of group %d: %v", proc.n, number, err)
		}
		proc.sim.trace("member %d erases the log of group %d", proc.n, number)
		proc.hosted.erased = list.Created
		delete(proc.hosted.logs, number)
		clear(proc.part(number).recorded)
	}
}

// startListed is Groups.startListed.
func (proc *process) startListed(list *fact.Directory) {
	for _, r := range list.Groups {
		if proc.hosted.logs[r.Number] == nil && r.Number > proc.hosted.erased {
			proc.openGroup(r.Number)
		}
	}
	for _, number := range proc.hosted.numbers() {
		r, log := list.Group(number), proc.hosted.logs[number]
		if list.Dropped(number) || r == nil && !log.Bootstrapped() || proc.part(number).process != nil {
			continue
		}
		proc.startGroup(number, log, r)
	}
}

// startGroup is Groups.start.
func (proc *process) startGroup(number uint32, log *raftlog.Log, r *fact.GroupRecord) {
	first := false
	switch {
	case r == nil || log.Bootstrapped():
	case !slices.Contains(r.Voters, proc.id()) && !slices.Contains(r.Standbys, proc.id()):
		log.SetLocalNoSync("awaited", []byte{})
	default:
		state := machine.FirstStateOf(r)
		if err := log.BootstrapWith(&raftpb.ConfState{Voters: r.Voters, Learners: r.Standbys}, state, core.FirstDigest(state)); err != nil {
			proc.sim.fail("member %d: begin group %d: %v", proc.n, number, err)
		}
		first = r.Voters[int(r.Number)%len(r.Voters)] == proc.id()
	}
	proc.part(number).startReplica(proc.hostProcess, log, proc.incarnation, first)
}

func (g *hostedGroups) numbers() []uint32 { return slices.Sorted(maps.Keys(g.logs)) }

// part returns the member's part in a further group.
func (proc *process) part(number uint32) *simMember {
	if int(number) > len(proc.sim.further) {
		proc.sim.fail("member %d has group %d, which was never created", proc.n, number)
	}
	return proc.sim.further[number-1].members[proc.n]
}

// isUp reports whether the member's process runs.
func (m *simMember) isUp() bool {
	if m.of != nil {
		return m.of.process != nil
	}
	return m.process != nil
}

// end ends the process's part in a further group.
func (m *simMember) end() *process {
	proc := m.process
	m.process = nil
	proc.program.terminate()
	proc.serving.ended()
	return proc
}

// endReplicas ends the process's parts in all further groups.
func (sim *simulation) endReplicas(n int) (ended []*process) {
	for _, g := range sim.further {
		if g.members[n].process != nil {
			ended = append(ended, g.members[n].end())
		}
	}
	return ended
}

// mayRemove is Groups.mayRemove.
func (proc *process) mayRemove(member uint64) bool {
	if proc.of != nil || proc.hosted.logs == nil {
		return true
	}
	for _, r := range proc.core.Machine().Directory().Groups {
		further := proc.part(r.Number).process
		if further == nil {
			return false
		}
		conf := further.core.Status().Membership
		if len(conf.GetVoters()) == 0 || slices.Contains(core.MembersOf(conf), member) {
			return false
		}
	}
	return true
}
