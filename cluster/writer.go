package cluster

import (
	"errors"
	"fmt"
	"iter"

	"github.com/conclave-go/conclave/raftlog"
)

// writer carries the core's writes to the storage goroutine, in their order.
// One batch is under way at a time; what comes meanwhile goes into the next,
// so that the slower the disk is, the more one sync serves.
type writer struct {
	queue []write
	busy  bool
}

func (m *Member) write(writes []write) {
	m.writer.queue = append(m.writer.queue, writes...)
	if m.writer.busy || len(m.writer.queue) == 0 {
		return
	}
	batch := m.writer.queue
	m.writer.queue, m.writer.busy = nil, true

	var ops []raftlog.Op
	installs := false
	for _, w := range batch {
		if w.op == nil {
			continue
		}
		if _, ok := w.op.(raftlog.Install); ok {
			installs = true
		}
		ops = append(ops, w.op)
	}
	m.raftLog.Submit(ops, func(err error) {
		var machine Machine
		if err == nil && installs {
			machine, err = m.loadMachine()
		}
		if err != nil {
			m.fail(fmt.Errorf("writing the log: %w", err))
			return
		}
		m.mailbox.post(event{run: func(c *core) {
			m.writer.busy = false
			c.stored(batch, machine)
			m.write(nil)
		}})
	})
}

// loadMachine brings the machine back from the disk.
func (m *Member) loadMachine() (Machine, error) {
	var readErr error
	machine, err := m.cfg.LoadMachine(pairs(m.raftLog, &readErr))
	if err := errors.Join(readErr, err); err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	return machine, nil
}

var errEnough = errors.New("enough")

// pairs iterates over the state on disk; err is set when it ended early.
func pairs(log *raftlog.Log, err *error) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		*err = log.State(func(key, value []byte) error {
			if !yield(key, value) {
				return errEnough
			}
			return nil
		})
		if errors.Is(*err, errEnough) {
			*err = nil
		}
	}
}
