//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

func TestReadHistory_KilledProcess(t *testing.T) {
	ops, err := readHistory("m1.1", strings.NewReader(`{"i":1,"t":5,"op":"lock","name":"l","hold":"h"}
{"i":2,"t":6,"op":"put","name":"k","value":"v"}
{"i":1,"t":7,"r":"ok","fence":3}
{"i":2,"t":8,"r":"o`))
	if err != nil || len(ops) != 2 {
		t.Fatalf("got %v, %v; want two operations", ops, err)
	}
	if op := ops[0]; op.result != resultOK || op.fence != 3 || op.returned != 7 || op.Time != 5 {
		t.Errorf("the first operation is %v", op)
	}
	if op := ops[1]; op.result != resultUnknown || op.returned != never {
		t.Errorf("the call without a return is %v, want it unknown", op)
	}
	for _, text := range []string{"x\n", `{"i":1,"t":7,"r":"ok"}` + "\n"} {
		if _, err := readHistory("m1.1", strings.NewReader(text)); err == nil {
			t.Errorf("the malformed history %q was read", text)
		}
	}
}

func TestRecorder_RoundTrip(t *testing.T) {
	reader, writer := io.Pipe()
	h := &recorder{file: writer, fail: func(err error) { t.Error(err) }}
	go func() {
		id := h.call(record{Op: opGet, Name: "k"})
		h.returned(id, record{Result: resultOK, Value: "v", Index: 4})
		_ = writer.Close()
	}()
	ops, err := readHistory("m1.1", reader)
	if err != nil || len(ops) != 1 || ops[0].value != "v" || ops[0].index != 4 || ops[0].returned < ops[0].Time {
		t.Errorf("got %v, %v", ops, err)
	}
}

func TestRow_Measure(t *testing.T) {
	var s story
	s.lock("a", 10, 20, 1)
	s.on(opCheck, "a", 21, 22, 1)
	s.on(opUnlock, "a", 23, 24, 1)
	s.lock("b", 15, 60, 2) // was waiting when the leader died
	s.both(opRLock, "c", 45, 75, 0, 3)
	s.both(opRCheck, "c", 76, 77, 3, 3)
	s.write(opPut, "v", 0, 50, never, resultUnknown, 0)
	s.get(1, 2, "x", 1)
	s.ops[len(s.ops)-1].result = resultFailed
	r := row{nemesis: "kill", began: 0, ended: 100}
	r.measure(s.ops, []death{{at: 40}})
	if r.operations != 6 || r.unknown != 1 || r.failed != 1 || r.grants != 3 || r.shared != 1 {
		t.Errorf("got %d operations, %d unknown, %d failed, %d grants, %d of them shared; want 6, 1, 1, 3, 1", r.operations, r.unknown, r.failed, r.grants, r.shared)
	}
	if r.gap != 40 || len(r.failovers) != 1 || r.failovers[0] != 35 {
		t.Errorf("got a gap of %v and failovers %v, want 40 ns and 35 ns", r.gap, r.failovers)
	}
}

func TestTable(t *testing.T) {
	rows := []row{
		{nemesis: "kill", ended: int64(10 * time.Second), operations: 6000, unknown: 3, gap: 1234 * time.Millisecond,
			failovers: []time.Duration{time.Second, 200 * time.Millisecond, 300 * time.Millisecond},
			before:    usage{12 << 20, 80 << 20}, after: usage{13 << 20, 90 << 20},
			verdict: verdict{searches: 9, unknown: []string{"k"}, violations: []string{"lock/1" + notLinearizable + "x", "other"}}},
		{nemesis: "churn", unsupported: "not supported by this build: why"},
	}
	var text strings.Builder
	printTable(&text, rows)
	printFindings(&text, rows)
	flat := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{
		"kill 6000 600 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1.23s 3: 300ms / 1s 0s 12 / 80 13 / 90 7 1 0 2", "churn (no fault: not supported)",
		"VIOLATION, kill: other", "searches given up after 20s: k", "churn: not supported by this build: why",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	if !violated(rows) || violated(rows[1:]) {
		t.Error("violated: want true with the first row, false without it")
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		op   string
		err  error
		want string
	}{
		{opPut, nil, resultOK},
		{opPut, conclave.ErrUnknown, resultUnknown},
		{opPut, fmt.Errorf("%w: %w", conclave.ErrUnavailable, conclave.ErrUnknown), resultUnknown},
		{opPut, conclave.ErrUnavailable, resultFailed},
		{opPut, conclave.ErrClosed, resultUnknown}, // it may have been submitted
		{opGet, conclave.ErrClosed, resultFailed},
		{opGet, conclave.ErrKeyNotFound, resultAbsent},
		{opCheck, conclave.ErrShardMoved, resultMoved},
		{opReturn, conclave.ErrLockOwnershipLost, resultLost},
		{opReturn, context.Canceled, resultUnknown}, // the worker leaves
		{opRun, conclave.ErrJobDone, resultClosed},
		{opRun, context.DeadlineExceeded, resultFailed},
		{opEnd, fmt.Errorf("%w: %w", context.DeadlineExceeded, conclave.ErrUnknown), resultUnknown},
		{opTry, conclave.ErrLocked, resultRefused},
		{opLock, conclave.ErrUnknown, resultFailed}, // a Lock that failed never holds
		{opTryRLock, conclave.ErrLocked, resultRefused},
		{opRLock, conclave.ErrUnknown, resultFailed},
		{opDowngrade, conclave.ErrUnknown, resultUnknown},
		{opUnlock, conclave.ErrLockOwnershipLost, resultLost},
		{opUnlock, conclave.ErrNotHeld, resultNotHeld},
		{opUnlock, errors.New("other"), resultUnknown},
	} {
		if got := classify(c.op, c.err); got != c.want {
			t.Errorf("%s with %v: got %s, want %s", c.op, c.err, got, c.want)
		}
	}
}

func TestParseOptions_Errors(t *testing.T) {
	for args, want := range map[string]string{
		"-nemesis flood":     "invalid -nemesis",
		"-members 2":         "invalid -members",
		"-for 10ms":          "invalid -for",
		"-rate 0":            "invalid -rate",
		"-groups 17":         "invalid -groups",
		"-binary2 /nowhere":  "invalid -binary2",
		"surplus":            "unexpected argument",
		"-unknown":           "not defined",
		"-nemesis kill,kil":  "invalid -nemesis",
		"-members 2 -rate 0": "invalid -rate",
	} {
		if _, err := parseOptions(strings.Fields(args), io.Discard); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
	if _, err := parseOptions([]string{"-help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: got %v", err)
	}
}

func TestParseOptions_PassedOn(t *testing.T) {
	o, err := parseOptions(strings.Fields("-for 5s -nemesis kill,loss -members 3 -groups 4 -seed 7 -rate 50 -v"), io.Discard)
	if err != nil || len(o.nemeses) != 2 {
		t.Fatalf("got %+v, %v", o, err)
	}
	o.dir = "/d"
	again, err := parseOptions(o.arguments()[1:], io.Discard)
	if err != nil || again.span != o.span || len(again.nemeses) != 2 || again.members != 3 || again.groups != 4 || again.seed != 7 || again.rate != 50 || !again.verbose || again.dir != "/d" {
		t.Errorf("got %+v, %v", again, err)
	}
	if all, err := selectNemeses("all"); err != nil || len(all) != len(nemeses()) {
		t.Errorf("all: got %d nemeses, %v", len(all), err)
	}
}
