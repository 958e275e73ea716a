package main

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Each kind of workload runs on its systems, and gives a figure for each turn. Every start of
// etcd takes seconds, so the kinds share a run.
func TestRun(t *testing.T) {
	t.Parallel() // most of the time it waits for etcd to start and stop
	dir := t.TempDir()
	o := options{
		workloads: "own-64,semaphore-64,rw-64,set-64,put-64,get-64,watch-100,groups-8-64,beside-small,failover", turns: 1, length: 100 * time.Millisecond,
		ceiling: true, memory: true, peer: "etcd",
		dir: filepath.Join(dir, "data"), csv: filepath.Join(dir, "figures.csv"), svg: filepath.Join(dir, "chart.svg"),
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 12 || !strings.Contains(out.String(), "share of the ceiling: own-64 ") {
		t.Errorf("%d lines, want a header, 10 rows and a share:\n%s", lines, &out)
	}
	wantFigures(t, o.csv, 10*3-3+1) // etcd has no semaphore and no further groups; one workload has a ceiling
	wantProcessorTime(t, o.csv)
	wantXML(t, o.svg)
}

func TestRun_WrongFlags(t *testing.T) {
	for name, o := range map[string]options{
		"workload": {workloads: "nap", turns: 1, length: time.Second, peer: "none"},
		"turns":    {workloads: "all", turns: 0, length: time.Second, peer: "none"},
		"length":   {workloads: "all", turns: 1, length: time.Hour, peer: "none"},
		"peer":     {workloads: "own-1", turns: 1, length: 100 * time.Millisecond, peer: "chubby"},
		"recipe":   {workloads: "own-1", turns: 1, length: 100 * time.Millisecond, peer: "consul-recipe"},
	} {
		if err := run(t.Context(), o, io.Discard); err == nil {
			t.Errorf("accepted a wrong %s", name)
		}
	}
}

// What an empty machine does not answer itself is for the machine that it wraps.
func TestEmptyMachine(t *testing.T) {
	m, err := loadEmpty(func(func(key, value []byte) bool) {})
	if err != nil {
		t.Fatal(err)
	}
	id := wire.ID{1}
	apply := func(index uint64, commands ...[]byte) []fact.Outcome {
		s := &wire.Submission{Incarnation: id[:], Member: 7}
		for i, c := range commands {
			s.Calls = append(s.Calls, &wire.Call{Seq: index*10 + uint64(i), Command: c})
		}
		data, err := proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: int64(index), Submissions: []*wire.Submission{s}})
		if err != nil {
			t.Fatal(err)
		}
		r := m.Apply(index, 1, data)
		if m.Now() != int64(index) {
			t.Errorf("group time %d, want %d", m.Now(), index)
		}
		return r.Outcomes
	}
	register, err := proto.Marshal(&wire.Command{Op: &wire.Command_Register{Register: &wire.Register{Member: 7, Boot: 1, Ttl: machine.MaxTTL, NextToken: id[:]}}})
	if err != nil {
		t.Fatal(err)
	}
	for index, commands := range [][][]byte{1: {{mark}}, 2: {register, {mark, 1}}, 3: {{mark}, {mark}}} {
		got := apply(uint64(index), commands...)
		if len(got) != len(commands) {
			t.Errorf("%d outcomes of %d commands", len(got), len(commands))
		}
		for _, o := range got {
			if o.Reply.GetCode() != wire.Code_OK || o.Member != 7 || o.Ticket.Incarnation != id || o.Ticket.Seq/10 != uint64(index) {
				t.Errorf("batch %d: %+v", index, o)
			}
		}
	}
	if m.Registered()[7] != id {
		t.Error("the registration is not applied")
	}
}

func TestGrouped(t *testing.T) {
	for x, want := range map[float64]string{7: "7", 999: "999", 1000: "1,000", 1234567.8: "1,234,568"} {
		if got := grouped(x); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMiddle(t *testing.T) {
	if got := middle([]float64{3, 1, 2}); got != 2 {
		t.Errorf("got %v", got)
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// wantFigures checks that a CSV file has so many lines of figures, none of them 0.
func wantFigures(t *testing.T, name string, lines int) {
	t.Helper()
	figures, err := csv.NewReader(open(t, name)).ReadAll()
	if err != nil || len(figures) != 1+lines {
		t.Fatalf("%d lines of figures, want %d: %v, %v", len(figures)-1, lines, figures, err)
	}
	for _, f := range figures {
		if f[3] == "0" {
			t.Errorf("no operation: %v", f)
		}
	}
}

// wantProcessorTime checks that a CSV file has the processor time of each operation that callers repeat.
func wantProcessorTime(t *testing.T, name string) {
	t.Helper()
	if _, err := cpuTime(); err != nil {
		return // this system does not count it
	}
	figures, err := csv.NewReader(open(t, name)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures[1:] {
		if each, err := strconv.ParseFloat(f[6], 64); err != nil || each <= 0 && f[0] != "failover" || each > 1 {
			t.Errorf("%s seconds of processors for an operation: %v", f[6], f)
		}
	}
}

func wantXML(t *testing.T, name string) {
	t.Helper()
	chart := xml.NewDecoder(open(t, name))
	for {
		if _, err := chart.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// A workload of readers and writers without one of them fails.
func TestModes_NotBoth(t *testing.T) {
	var m modes
	for _, counted := range []func(){func() {}, func() { m.shared.Add(1) }, func() { m.exclusive.Add(1) }} {
		counted()
		if err := m.verify(); err == nil {
			t.Error("accepted one mode")
		}
	}
	m.shared.Add(1)
	m.exclusive.Add(1)
	if err := m.verify(); err != nil {
		t.Error(err)
	}
}

// A workload in both modes, or of several locks, runs on all systems but ZooKeeper, and the ceiling, which has no locks.
func TestModes_Systems(t *testing.T) {
	for _, w := range workloads {
		for _, peer := range []string{"etcd", "zookeeper"} {
			all, err := systems(options{peer: peer, ceiling: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if runs := w.on(s) != nil; (w.both || w.several) && runs != (s.name == disk || s.name == "etcd") {
					t.Errorf("%s on %s: %v", w.name, s.name, runs)
				}
			}
		}
	}
}
