package storage

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactions is Pebble's scheduler of compactions: one runs at a time, as with Pebble's
// own scheduler, and none starts after the failure of the store. A failed database only
// has to shut down, and its files are in memory. Pebble does not ask for compactions that
// only delete tables; they write none.
type compactions struct {
	failstop *failstop
	db       pebble.DBForCompaction // set by Register

	mu       sync.Mutex // protects the fields below; ordered after Pebble's mutexes
	running  bool
	granting bool       // a goroutine is in grant, and calls db without mu
	look     bool       // a compaction may wait
	closed   bool       // Unregister was called
	granted  *sync.Cond // granting has become false
}

func newCompactions(f *failstop) *compactions {
	c := &compactions{failstop: f}
	c.granted = sync.NewCond(&c.mu)
	return c
}

func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

func (c *compactions) Unregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.granting {
		c.granted.Wait()
	}
}

// TrySchedule is called with Pebble's mutex locked. After false, Pebble has a compaction
// waiting, which Done grants.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running || c.closed || c.failstop.error() != nil {
		return false, nil
	}
	c.running = true
	return true, c
}

// Done is called at the end of each compaction, without Pebble's mutex.
func (c *compactions) Done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.look = false, true
	if c.granting {
		return // that goroutine looks again
	}
	for c.look && !c.closed && c.failstop.error() == nil {
		c.look = false
		c.grant()
	}
}

// grant starts the compaction that waits, if any. It is called with mu locked, and unlocks
// it while it calls Pebble.
func (c *compactions) grant() {
	c.granting = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.granting = false
		c.granted.Broadcast()
	}()
	if waiting, _ := c.db.GetWaitingCompaction(); !waiting {
		return
	}
	// In this order: the compaction may end before Schedule returns.
	if ok, _ := c.TrySchedule(); ok && !c.db.Schedule(c) {
		c.mu.Lock()
		c.running, c.look = false, true // another may wait since TrySchedule refused it
		c.mu.Unlock()
	}
}

func (*compactions) UpdateGetAllowedWithoutPermission()                {} // always one
func (*compactions) Started()                                          {}
func (*compactions) MeasureCPU(pebble.CompactionGoroutineKind)         {}
func (*compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}
