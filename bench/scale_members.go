package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// memberProcess is a process of this program that is one member.
type memberProcess struct {
	orders  *json.Encoder
	answers *json.Decoder
	input   io.Closer // its end ends the process
	output  io.Closer
	ended   chan struct{}
	err     error // what ended it
	id      conclave.MemberID
}

// memberProcesses are the members of one group, and its further groups.
type memberProcesses struct {
	all    []*memberProcess
	groups []string
	stop   context.CancelFunc // kills the processes
}

// longestScale bounds the life of members.
const longestScale = 10 * time.Minute

// startMembers starts three members with data in a directory, and further groups on them.
func startMembers(ctx context.Context, dir string, groups int) (m *memberProcesses, err error) {
	m = new(memberProcesses)
	ctx, m.stop = context.WithTimeout(ctx, longestScale)
	defer func() {
		if err != nil {
			m.stop()
			m.close()
		}
	}()
	for range members {
		p, err := startMember(ctx)
		if err != nil {
			return m, err
		}
		m.all = append(m.all, p)
	}
	var addresses []string
	for _, p := range m.all {
		a, err := p.receive()
		if err != nil {
			return m, err
		}
		addresses = append(addresses, a.Address)
	}
	opened, err := m.ask(func(i int) order {
		name := fmt.Sprint("m", i)
		return order{Open: &opening{Name: name, Dir: filepath.Join(dir, name), Join: addresses}}
	})
	if err != nil {
		return m, err
	}
	for i, a := range opened {
		m.all[i].id = a.ID
	}
	for i := range groups {
		m.groups = append(m.groups, fmt.Sprint("group-", i))
	}
	_, err = m.all[0].ask(order{Create: m.groups})
	return m, err
}

// startMember starts a process that listens on a port of its own choice.
func startMember(ctx context.Context) (*memberProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	theirInput, ourOrders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourAnswers, theirOutput, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirInput.Close(), ourOrders.Close())
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), memberVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirInput, theirOutput, os.Stderr
	dieWithParent(cmd)
	p := &memberProcess{
		orders: json.NewEncoder(ourOrders), answers: json.NewDecoder(ourAnswers), input: ourOrders, output: ourAnswers, ended: make(chan struct{}),
	}
	go p.run(cmd, theirInput, theirOutput)
	return p, nil
}

// run is as zooKeeperServer.run.
func (p *memberProcess) run(cmd *exec.Cmd, files ...io.Closer) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	p.err = cmd.Run()
	for _, f := range files {
		_ = f.Close() // a copy of what the process had
	}
}

// close ends the processes and waits until they have ended.
func (m *memberProcesses) close() {
	for _, p := range m.all {
		_ = p.input.Close()
	}
	for _, p := range m.all {
		<-p.ended
		_ = p.output.Close()
	}
	m.stop()
}

func (p *memberProcess) receive() (a answer, err error) {
	switch err := p.answers.Decode(&a); {
	case errors.Is(err, io.EOF):
		<-p.ended
		return a, fmt.Errorf("a member has ended: %w", cmp.Or(p.err, err))
	case err != nil:
		return a, err
	}
	if a.Error != "" {
		return a, fmt.Errorf("a member: %s", a.Error)
	}
	return a, nil
}

func (p *memberProcess) ask(o order) (answer, error) {
	if err := p.orders.Encode(o); err != nil {
		return answer{}, fmt.Errorf("a member has ended: %w", err)
	}
	return p.receive()
}

// ask gives each member an order, all at the same time. If one fails, all are stopped: others may wait for it.
func (m *memberProcesses) ask(of func(i int) order) ([]answer, error) {
	answers, errs := newSlice[answer](len(m.all)), newSlice[error](len(m.all))
	var wg sync.WaitGroup
	for i, p := range m.all {
		wg.Go(func() {
			if answers[i], errs[i] = p.ask(of(i)); errs[i] != nil {
				m.stop()
			}
		})
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}

// even is how long members take at most until they lead as many groups each: they move one leadership in about a second.
const even = time.Minute

// leaders waits until each group has a leader and, if there are enough, these are spread evenly over the members. It returns the
// numbers of the leading members, by group.
func (m *memberProcesses) leaders(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, even)
	defer cancel()
	for {
		a, err := m.all[0].ask(order{Leads: true})
		if err != nil {
			return nil, err
		}
		leaders, counts := make(map[string]int), make([]int, members)
		for name, id := range a.Leaders { // the default group counts, and does not move
			if i := slices.IndexFunc(m.all, func(p *memberProcess) bool { return p.id == id }); i >= 0 {
				leaders[name] = i
				counts[i]++
			}
		}
		spread := len(m.groups) < members || slices.Max(counts)-slices.Min(counts) <= 1
		if len(leaders) == len(a.Leaders) && len(leaders) > len(m.groups) && spread {
			return leaders, nil
		}
		if err := pass(ctx, 50*time.Millisecond); err != nil { // nothing signals that
			return nil, fmt.Errorf("leaders are not spread: %v: %w", a.Leaders, err)
		}
	}
}

// sync returns how long a synced write waits for the disk, of one member alone and of all members at once.
func (m *memberProcesses) sync(length time.Duration) (alone, together time.Duration, err error) {
	a, err := m.all[0].ask(order{Sync: length})
	if err != nil {
		return 0, 0, err
	}
	all, err := m.ask(func(int) order { return order{Sync: length} })
	for _, b := range all {
		together += b.Sync / members
	}
	return a.Sync, together, err
}

// scaleRun is one run, with what each member has spent.
type scaleRun struct {
	check
	length            time.Duration
	members           []spent
	leading           int     // the member that leads the group, if there is one
	cycles            float64 // a second
	entries, commands float64
	others            float64 // processors that other programs used
	moved             bool    // a leadership has
}

// synced returns the synced writes of all members.
func (r scaleRun) synced() (sum float64) {
	for _, s := range r.members {
		sum += s.Synced
	}
	return sum
}

// cpu returns the processor time of all members.
func (r scaleRun) cpu() (sum float64) {
	for _, s := range r.members {
		for _, spent := range s.CPU {
			sum += spent
		}
	}
	return sum
}

// run has callers in some of the groups, at their leaders. These are chosen so that the members lead as many of them each.
func (m *memberProcesses) run(ctx context.Context, c check, length time.Duration) (r scaleRun, err error) {
	r.check, r.length = c, length
	leaders, err := m.leaders(ctx)
	if err != nil {
		return r, err
	}
	callers := make([]map[string]int, members)
	for _, name := range evenly(m.groups, leaders, c.load.groups) {
		at := leaders[name]
		if callers[at] == nil {
			callers[at] = make(map[string]int)
			r.leading = at
		}
		callers[at][name] = int(c.load.callers)
	}
	watched := watchOthers()
	answers, err := m.ask(func(i int) order { return order{Run: &turnOrder{Callers: callers[i], Procs: c.procs, For: length}} })
	if err != nil {
		return r, err
	}
	var used time.Duration
	for _, a := range answers {
		s := a.Run
		used += s.Whole
		r.members = append(r.members, s)
		r.cycles, r.entries, r.commands = r.cycles+s.Rate, r.entries+s.Entries, r.commands+s.Commands
		r.moved = r.moved || s.Moved
	}
	r.others = watched.since(used)
	if r.entries == 0 {
		return r, errors.New("a run without an entry")
	}
	return r, nil
}

// evenly returns n of the groups, in turn one of each member that leads some.
func evenly(groups []string, leaders map[string]int, n int) (chosen []string) {
	byLeader := make([][]string, members)
	for _, name := range groups {
		byLeader[leaders[name]] = append(byLeader[leaders[name]], name)
	}
	for round := 0; len(chosen) < min(n, len(groups)); round++ {
		for _, led := range byLeader {
			if round < len(led) && len(chosen) < n {
				chosen = append(chosen, led[round])
			}
		}
	}
	return chosen
}
