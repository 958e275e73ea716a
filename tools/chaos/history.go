//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Kinds of operations. A check reads the fence of a hold, by the holder's clock
// only; all others ask the group.
const (
	opLock   = "lock"
	opTry    = "try"
	opUnlock = "unlock"
	opCheck  = "check"

	opRLock     = "rlock"
	opTryRLock  = "tryrlock"
	opRUnlock   = "runlock"
	opRCheck    = "rcheck" // a check of a shared hold
	opDowngrade = "downgrade"
	opExtend    = "extend" // of what is held in any mode, or of permits

	opAcquire = "acquire"
	opRelease = "release"
	opConfirm = "confirm" // a check of permits
	opPut     = "put"
	opSwap    = "swap"
	opGet     = "get"

	opOwn    = "own"    // a call of the work on a shard: since Run was called, until the work has begun
	opReturn = "return" // from the end of the work's context until the work returns
	opOwner  = "owner"  // reads the owner of a shard
	opRun    = "run"    // a call of Once, until its function has begun
	opEnd    = "end"    // from the end of that function on

	opCreate = "create" // a group, unless it exists
	opDelete = "delete" // a group that holds nothing
	opForce  = "force"  // deletes a group with what it holds
)

// Results of operations.
const (
	resultOK      = "ok"
	resultRefused = "refused" // the group's answer: locked, the limit, another index
	resultAbsent  = "absent"  // the key does not exist
	resultLost    = "lost"    // the hold was lost
	resultExpired = "expired" // the hold was lost by its MaxHold
	resultNotHeld = "not held"
	resultMoved   = "moved"    // the shard is to move to another owner
	resultNoGroup = "no group" // it is deleted
	resultClosed  = "closed"   // the key of a job: the value says why, and the fence is that of its last run
	resultFailed  = "failed"   // no effect
	resultUnknown = "unknown"  // it may have taken effect, or may yet
)

// record is one line of a history: a call, or the return of a call.
type record struct {
	ID      uint64        `json:"i"` // of the call, in its file
	Time    int64         `json:"t"` // CLOCK_MONOTONIC in ns, the same for all processes
	Op      string        `json:"op,omitempty"`
	Group   string        `json:"group,omitempty"`  // "": the default one
	Handle  string        `json:"handle,omitempty"` // to a short-lived group: names the creation that has returned it, in all files
	Name    string        `json:"name,omitempty"`
	Hold    string        `json:"hold,omitempty"`  // names the acquisition, in all files
	Holds   int           `json:"holds,omitempty"` // that the handle had before the call
	N       int           `json:"n,omitempty"`     // permits
	Limit   int           `json:"limit,omitempty"` // of the semaphore, or of the re-entrant lock
	MaxHold time.Duration `json:"max,omitempty"`   // of a call: 0: none
	Every   time.Duration `json:"every,omitempty"` // of the runs of a job: their period; 0: none, they have a key
	Parts   []part        `json:"parts,omitempty"` // of a set, in place of a name
	Taken   []part        `json:"taken,omitempty"` // of the return of a set: the names that the refusal lists, with the holds in the way
	Value   string        `json:"value,omitempty"` // of the end of a run: what it is to be recorded as
	Index   uint64        `json:"index,omitempty"` // expected by a swap; on return the modify index
	Result  string        `json:"r,omitempty"`     // set in returns only
	Fence   uint64        `json:"fence,omitempty"`
	Error   string        `json:"err,omitempty"`
}

// now returns the monotonic time, which is comparable between processes.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the kernel has this clock
	}
	return t.Nano()
}

// recorder writes a history. Each line is one write, so that a kill loses none.
type recorder struct {
	mu   sync.Mutex
	file io.WriteCloser // guarded by mu
	last uint64         // guarded by mu
	fail func(error)
}

func (h *recorder) call(r record) uint64 { return h.since(now(), r) }

// since records a call that began before.
func (h *recorder) since(began int64, r record) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	r.ID, r.Time = h.last, began
	h.write(r)
	return r.ID
}

func (h *recorder) returned(id uint64, r record) {
	at := now()
	h.mu.Lock()
	defer h.mu.Unlock()
	r.ID, r.Time = id, at
	h.write(r)
}

// write appends a line. Callers hold mu.
func (h *recorder) write(r record) {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = h.file.Write(append(line, '\n'))
	}
	if err != nil {
		h.fail(fmt.Errorf("write history: %w", err))
	}
}

// never is the return of an operation that has not returned.
const never = math.MaxInt64

// operation is a call with its return.
type operation struct {
	record          // of the call
	process  string // the file
	returned int64  // never: unknown
	result   string
	fence    uint64
	parts    []part     // of a set, with the fences read
	taken    []part     // of a set
	whole    *operation // the one on a set that this is a part of
	value    string     // read
	index    uint64     // modify index after the operation
	err      string
}

func (op *operation) String() string {
	returned := "-"
	if op.returned != never {
		returned = fmt.Sprint(op.returned)
	}
	text := fmt.Sprintf("%s#%d [%d %s] %s %s", op.process, op.ID, op.Time, returned, op.Op, op.Name)
	if op.Group != defaultGroup {
		text += " in " + op.Group
	}
	if op.Handle != "" {
		text += " of handle " + op.Handle
	}
	for _, part := range []struct {
		show   bool
		format string
		value  any
	}{
		{isSet(op), "%s", describeParts(op.Parts)}, {op.whole != nil, " %s", "of a set"}, {op.Hold != "", " by %s", op.Hold}, {op.N != 0, " n=%d", op.N}, {op.MaxHold != 0, " for %v", op.MaxHold}, {op.Every != 0, " every %v", op.Every}, {op.Value != "", " value %s", op.Value},
		{op.Op == opSwap, " expect %d", op.Index}, {true, " -> %s", op.result}, {op.fence != 0, " fence %d", op.fence}, {len(op.parts) > 0, " %s", describeParts(op.parts)},
		{op.value != "", " read %s", op.value}, {op.index != 0, " index %d", op.index}, {op.err != "", " (%s)", op.err},
	} {
		if part.show {
			text += fmt.Sprintf(part.format, part.value)
		}
	}
	return text
}

// readHistories reads all histories of a directory, in the order of calls.
func readHistories(dir string) ([]*operation, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []*operation
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		ops, err := readHistory(strings.TrimSuffix(filepath.Base(name), ".jsonl"), file)
		_ = file.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, ops...)
	}
	slices.SortStableFunc(all, func(a, b *operation) int { return compare(a.Time, b.Time) })
	return all, nil
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// readHistory reads the history of one process. Calls without a return are unknown.
func readHistory(process string, from io.Reader) ([]*operation, error) {
	var ops []*operation
	byID := make(map[uint64]*operation)
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return ops, nil // the last line of a killed process may be incomplete
		}
		if err != nil {
			return nil, err
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("malformed line %q: %w", line, err)
		}
		if r.Result == "" {
			op := &operation{record: r, process: process, returned: never, result: resultUnknown}
			ops, byID[r.ID] = append(ops, op), op
			continue
		}
		op := byID[r.ID]
		if op == nil {
			return nil, fmt.Errorf("return of call %d, which is not in the history", r.ID)
		}
		op.returned, op.result, op.fence, op.value, op.index, op.err = r.Time, r.Result, r.Fence, r.Value, r.Index, r.Error
		op.parts, op.taken = r.Parts, r.Taken
	}
}
