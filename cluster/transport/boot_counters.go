package transport

import (
	"fmt"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// bootCounters holds the highest boot counter of each member and the process
// that presented it. A copied or rolled-back data directory presents a counter
// that another process has used.
//
// The first process to present a counter may be one that the group refuses, on a copy.
// So the process that the group has registered replaces what was seen before, whatever
// its counter is.
type bootCounters struct {
	onChange func(member, boot uint64) // may be nil

	mu      sync.Mutex // guards highest, and orders the calls of onChange
	highest map[uint64]boot
}

type boot struct {
	counter     uint64
	incarnation wire.ID // zero: not seen since this process started
}

func newBootCounters(known map[uint64]uint64, onChange func(member, boot uint64)) *bootCounters {
	b := &bootCounters{onChange: onChange, highest: make(map[uint64]boot, len(known))}
	for member, counter := range known {
		b.highest[member] = boot{counter: counter}
	}
	return b
}

// check compares an identity with the highest counter of its member. registered states
// that it is of the process that the group has registered last.
func (b *bootCounters) check(id *Identity, registered bool) *RefusedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.compare(id, registered)
}

// record is check, and records the identity if it passes. It is called for
// members of the group only, which bounds the map.
func (b *bootCounters) record(id *Identity, registered bool) *RefusedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	if refused := b.compare(id, registered); refused != nil {
		return refused
	}
	last, ok := b.highest[id.Member]
	b.highest[id.Member] = boot{counter: id.Boot, incarnation: id.Incarnation}
	if b.onChange != nil && (!ok || id.Boot != last.counter) {
		b.onChange(id.Member, id.Boot)
	}
	return nil
}

// compare is called with mu held. An equal counter passes once if its process
// is unknown: the member may have run on while this one restarted.
func (b *bootCounters) compare(id *Identity, registered bool) *RefusedError {
	last, ok := b.highest[id.Member]
	switch {
	case !ok || registered || id.Boot > last.counter:
		return nil
	case id.Boot < last.counter:
		return &RefusedError{Reason: ReasonRollback, Detail: fmt.Sprintf(
			"member %v has boot counter %d after %d was seen, so its data directory was restored from a copy: start it with its latest directory, or with an empty one, as a new member",
			wire.MemberID(id.Member), id.Boot, last.counter)}
	case last.incarnation.IsZero() || last.incarnation == id.Incarnation:
		return nil
	}
	return &RefusedError{Reason: ReasonClone, Detail: fmt.Sprintf(
		"two processes present boot counter %d of member %v, one of them runs on a copy of the data directory: stop that one, or start it with an empty directory, as a new member",
		id.Boot, wire.MemberID(id.Member))}
}
