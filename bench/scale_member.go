package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/storage"
)

// memberVariable is set in the environment of a process that is a member of -scale.
const memberVariable = "CONCLAVE_BENCH_MEMBER"

// order is what a member is to do next, and answer what it has done: a line of JSON each, on its standard input and output.
type order struct {
	Open   *opening
	Create []string // further groups
	Leads  bool     // who leads the further groups
	Run    *turnOrder
	Sync   time.Duration // for how long to measure the syncs of the disk
}

type opening struct {
	Name, Dir string
	Join      []string
}

// turnOrder is one run, at the same time on all members.
type turnOrder struct {
	Callers map[string]int // of groups that this member leads
	Procs   int            // GOMAXPROCS
	For     time.Duration  // a quarter of it is added for warming up
}

type answer struct {
	Error   string
	Address string // the first answer, to no order
	ID      conclave.MemberID
	Leaders map[string]conclave.MemberID
	Run     spent
	Sync    time.Duration
}

// spent is what a member has done in a run, and the processor time that it took.
type spent struct {
	Rate              float64 // cycles a second
	Entries, Commands float64 // that it has proposed
	Synced            float64 // writes
	CPU               [tasks]float64
	Whole             time.Duration // of the processor, with what came before and after that was measured
	Moved             bool          // it has lost the leadership of a group with callers
}

// serveMember runs a member until its orders end: at the latest with the process that gives them.
func serveMember(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m := &scaleMember{listener: l}
	defer m.close()
	answers, orders := json.NewEncoder(out), json.NewDecoder(in)
	if err := answers.Encode(answer{Address: l.Addr().String()}); err != nil {
		return err
	}
	for {
		var o order
		switch err := orders.Decode(&o); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		a, err := m.carryOut(context.Background(), o)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

type scaleMember struct {
	listener net.Listener
	dir      string
	node     *conclave.Node // nil until it is opened
}

func (m *scaleMember) close() {
	if m.node == nil {
		_ = m.listener.Close()
		return
	}
	_ = m.node.Close(cluster.WithCrash(context.Background())) // as conclaveGroup.close
}

func (m *scaleMember) carryOut(ctx context.Context, o order) (a answer, err error) {
	switch {
	case o.Open != nil:
		a.ID, err = m.open(ctx, *o.Open)
	case o.Create != nil:
		err = m.create(ctx, o.Create)
	case o.Leads:
		a.Leaders = make(map[string]conclave.MemberID)
		for g, err := range m.node.Groups(ctx) {
			if err != nil {
				return a, err
			}
			a.Leaders[g.Name] = g.Leader
		}
	case o.Run != nil:
		a.Run, err = m.run(ctx, *o.Run)
	case o.Sync > 0:
		a.Sync, err = measureSync(filepath.Join(m.dir, "sync"), o.Sync)
	}
	return a, err
}

func (m *scaleMember) open(ctx context.Context, o opening) (id conclave.MemberID, err error) {
	m.dir = o.Dir
	cfg := &conclave.Config{Name: o.Name, Listener: m.listener, Voters: members, Expect: members, Join: o.Join, Dir: filepath.Join(o.Dir, "data")}
	if m.node, err = conclave.Open(ctx, cfg); err != nil {
		return 0, err
	}
	return m.node.Status().ID, m.group().awaitShape(ctx, shape{voters: members, unused: true})
}

func (m *scaleMember) group() *conclaveGroup { return &conclaveGroup{nodes: []*conclave.Node{m.node}} }

// create creates further groups once the feature level is raised.
func (m *scaleMember) create(ctx context.Context, names []string) error {
	if err := m.group().awaitShape(ctx, shape{voters: members}); err != nil {
		return err
	}
	for _, name := range names {
		if _, err := m.node.CreateGroup(ctx, name, conclave.GroupConfig{}); err != nil {
			return err
		}
	}
	return nil
}

// run has the callers lock and unlock, and divides the processor time of this process by a profile of it.
func (m *scaleMember) run(ctx context.Context, o turnOrder) (s spent, err error) {
	runtime.GOMAXPROCS(o.Procs)
	whole, err := cpuTime()
	if err != nil {
		return s, fmt.Errorf("processor time: %w", err)
	}
	var callers []operation
	for name, n := range o.Callers {
		for i := range n {
			callers = append(callers, cycle(conclaveLock{m.node.WithGroup(name).FencedLock(fmt.Sprint("own-", i))}))
		}
	}
	if _, err := labelledTurn(ctx, callers, o.For/4); err != nil {
		return s, err
	}
	var profiled bytes.Buffer
	before, err := m.count()
	if err != nil {
		return s, err
	}
	if err := pprof.StartCPUProfile(&profiled); err != nil {
		return s, err
	}
	f, err := labelledTurn(ctx, callers, o.For)
	if err == nil {
		var after counters
		if after, err = m.count(); err == nil {
			s = after.since(before)
		}
	}
	pprof.StopCPUProfile()
	if err != nil {
		return s, err
	}
	s.Rate = f.rate
	for _, g := range m.node.Metrics().Groups {
		s.Moved = s.Moved || o.Callers[g.Name] > 0 && !g.Leads
	}
	shares, err := divide(profiled.Bytes())
	for t := range shares {
		s.CPU[t] *= shares[t]
	}
	used, unknown := cpuTime()
	s.Whole = used - whole
	return s, errors.Join(err, unknown)
}

// labelledTurn is turn with goroutines that a profile shows as callers. It takes as long without callers.
func labelledTurn(ctx context.Context, callers []operation, length time.Duration) (f figure, err error) {
	if len(callers) == 0 {
		return figure{}, pass(ctx, length)
	}
	pprof.Do(ctx, callerLabels, func(ctx context.Context) { f, err = turn(ctx, callers, length) })
	return f, err
}

// counters is what a member has counted so far.
type counters struct {
	cpu                       time.Duration
	entries, commands, synced float64
}

func (m *scaleMember) count() (c counters, err error) {
	if c.cpu, err = cpuTime(); err != nil {
		return c, err
	}
	metrics := m.node.Metrics()
	for _, g := range metrics.Groups {
		c.entries += float64(g.EntryCommands.Count())
		c.commands += g.EntryCommands.Sum
	}
	c.synced, err = syncedWrites(filepath.Join(m.dir, "data"))
	return c, err
}

// since has all of the processor time in each task: its share is not known yet.
func (c counters) since(before counters) spent {
	s := spent{Entries: c.entries - before.entries, Commands: c.commands - before.commands, Synced: c.synced - before.synced}
	for t := range s.CPU {
		s.CPU[t] = float64((c.cpu - before.cpu).Nanoseconds()) / 1000
	}
	return s
}

// syncedWrites returns how many synced writes a member has made. It keeps the number in a file (raftlog/watermark.go), alternately in
// two sectors; nothing else shows it outside of the process's memory.
func syncedWrites(dir string) (float64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "WATERMARK"))
	if err != nil {
		return 0, err
	}
	var n uint64
	const sector, version = 512, 1
	for _, at := range []int{version, sector + version} {
		if len(text) >= at+8 {
			n = max(n, binary.BigEndian.Uint64(text[at:]))
		}
	}
	return float64(n), nil
}

// measureSync returns how long a synced write of 1 KiB takes longer than its processor time.
func measureSync(dir string, length time.Duration) (wait time.Duration, err error) {
	s, err := storage.Open(storage.Options{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close(), os.RemoveAll(dir)) }()
	if _, err := writeSynced(s, length/4); err != nil { // a new file of the log is slower at first
		return 0, err
	}
	return writeSynced(s, length)
}

// writeSynced makes synced writes for a while, and returns how long each takes longer than its processor time.
func writeSynced(s *storage.Store, length time.Duration) (wait time.Duration, err error) {
	value, writes := make([]byte, 1<<10), 0
	used, err := cpuTime()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for time.Since(began) < length {
		binary.BigEndian.PutUint64(value, uint64(writes))
		if err := s.Do(func(db *pebble.DB) error { return db.Set([]byte("sync"), value, pebble.Sync) }); err != nil {
			return 0, err
		}
		writes++
	}
	took := time.Since(began)
	after, err := cpuTime()
	return max(0, took-(after-used)) / time.Duration(writes), err
}
