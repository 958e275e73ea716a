package storage

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// waitingCompactions is a database with compactions that wait for permission.
type waitingCompactions struct {
	waiting, started int
	noneWaits        func() // called once, after GetWaitingCompaction has found none
}

func (w *waitingCompactions) GetAllowedWithoutPermission() int { return 1 }

func (w *waitingCompactions) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	waiting := w.waiting > 0
	if f := w.noneWaits; !waiting && f != nil {
		w.noneWaits = nil
		f()
	}
	return waiting, pebble.WaitingCompaction{}
}

func (w *waitingCompactions) Schedule(pebble.CompactionGrantHandle) bool {
	w.waiting--
	w.started++
	return true
}

// One compaction runs at a time, its end starts the next that waits, and none starts
// once the store has failed or the database closes.
func TestCompactions_OneAtATime(t *testing.T) {
	for name, stop := range map[string]func(*compactions){
		"failed": func(c *compactions) { c.failstop.fail(syscall.EIO) },
		"closed": (*compactions).Unregister,
	} {
		t.Run(name, func(t *testing.T) {
			db := &waitingCompactions{waiting: 2}
			c := newCompactions(newFailstop())
			c.Register(2, db)
			try := func(want bool) {
				t.Helper()
				if got, _ := c.TrySchedule(); got != want {
					t.Fatalf("TrySchedule = %v", got)
				}
			}
			try(true)
			try(false)
			for i := range 2 {
				if c.Done(); db.started != i+1 {
					t.Fatalf("%d compactions started after %d ends", db.started, i+1)
				}
				try(false)
			}
			c.Done()
			try(true)
			db.waiting = 1
			stop(c)
			if c.Done(); db.started != 2 {
				t.Error("a compaction started after the end")
			}
			try(false)
		})
	}
}

// While the end of a compaction looks for one that waits, and finds none, another one
// starts, a third begins to wait for it, and it ends: the third starts.
func TestCompactions_WaitingWhileOneEnds(t *testing.T) {
	c := newCompactions(newFailstop())
	db := &waitingCompactions{}
	c.Register(2, db)
	c.TrySchedule()
	db.noneWaits = func() {
		if ok, _ := c.TrySchedule(); !ok {
			t.Error("no compaction starts")
		}
		if ok, _ := c.TrySchedule(); ok {
			t.Error("two compactions run")
		}
		db.waiting++
		c.Done()
	}
	if c.Done(); db.started != 1 {
		t.Errorf("a compaction waits for ever: %d started", db.started)
	}
}

// Tables that overlap are compacted without being asked for. How many a flush writes together, and a compaction reads, is up to
// when each gets a processor.
func TestCompactions_Run(t *testing.T) {
	s := open(t, Options{MemTableSize: 64 << 10})
	db, unpin, err := s.Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer unpin()
	for late := time.Now().Add(5 * time.Minute); db.Metrics().Compact.DefaultCount < 3; {
		if time.Now().After(late) {
			t.Fatalf("%d compactions of %d flushes", db.Metrics().Compact.DefaultCount, db.Metrics().Flush.Count)
		}
		if err := writeTables(s); err != nil {
			t.Fatal(err)
		}
	}
}

// Three tables that overlap are not compacted yet: each compaction rewrites the level below as well.
func TestCompactions_FewTables(t *testing.T) {
	s := open(t, Options{})
	err := s.Do(func(db *pebble.DB) error {
		for range 3 {
			if err := errors.Join(db.Set([]byte("a"), nil, pebble.NoSync), db.Set([]byte("b"), nil, pebble.NoSync), db.Flush()); err != nil {
				return err
			}
		}
		if m := db.Metrics(); m.Levels[0].Sublevels != 3 || m.Compact.DefaultCount+m.Compact.NumInProgress > 0 {
			t.Errorf("%d tables are left, with %d compactions and %d under way", m.Levels[0].Sublevels, m.Compact.DefaultCount, m.Compact.NumInProgress)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
