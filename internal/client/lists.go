package client

import (
	"context"
	"sync"
)

// lists numbers the states of what lists of members, sessions and checks show. The numbers
// are of this process; they are not smaller than the index of the last change, so that they
// fit among the indexes of the log.
type lists struct {
	life *lifetime

	mu    sync.Mutex
	now   uint64        // guarded by mu; 0: no state yet
	moved chan struct{} // guarded by mu; closed at the next change; nil without waiting callers
}

// change begins another state at an index of the log.
func (l *lists) change(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = max(l.now+1, index)
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// state returns the number of the present state, or a channel that is closed when it is no
// longer the one with the number after.
func (l *lists) state(after uint64) (now uint64, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now != after {
		return l.now, nil
	}
	if l.moved == nil {
		l.moved = make(chan struct{})
	}
	return 0, l.moved
}

// ListsChanged is called when lists of members, sessions or checks show something else, on
// any goroutine. Index is that of the last entry that has been applied.
func (l *lists) ListsChanged(index uint64) { l.change(index) }

// await returns the number of the present state of these lists, once that is not after.
func (l *lists) await(ctx context.Context, after uint64) (uint64, error) {
	for {
		if err := l.life.Usable(); err != nil {
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, contextFault(Interrupted, ctx)
		}
		now, moved := l.state(after)
		if moved == nil {
			return now, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
		case <-l.life.done:
		}
	}
}
