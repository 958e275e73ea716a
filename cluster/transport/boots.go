package transport

import (
	"fmt"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// boots remembers the highest boot counter of each member, and which process
// had it. A directory that was copied or rolled back betrays itself by a
// counter that was seen before.
type boots struct {
	raised func(member, boot uint64) // may be nil

	mu   sync.Mutex // guards seen, and orders the calls of raised
	seen map[uint64]boot
}

type boot struct {
	number      uint64
	incarnation wire.ID // zero: not met since this process started
}

func newBoots(known map[uint64]uint64, raised func(member, boot uint64)) *boots {
	b := &boots{raised: raised, seen: make(map[uint64]boot, len(known))}
	for member, number := range known {
		b.seen[member] = boot{number: number}
	}
	return b
}

// check compares an identity with what is remembered.
func (b *boots) check(id *Identity) *RefusedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.compare(id)
}

// admit is check, and remembers the identity when it passes. It is called for
// members of the group only, so what it remembers is bounded.
func (b *boots) admit(id *Identity) *RefusedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	if refused := b.compare(id); refused != nil {
		return refused
	}
	last, ok := b.seen[id.Member]
	b.seen[id.Member] = boot{number: id.Boot, incarnation: id.Incarnation}
	if b.raised != nil && (!ok || id.Boot > last.number) {
		b.raised(id.Member, id.Boot)
	}
	return nil
}

// compare is called with mu held. An equal counter passes once when it is not
// known which process had it: the member may have outlived our restart.
func (b *boots) compare(id *Identity) *RefusedError {
	last, ok := b.seen[id.Member]
	switch {
	case !ok || id.Boot > last.number:
		return nil
	case id.Boot < last.number:
		return &RefusedError{Reason: ReasonRollback, Detail: fmt.Sprintf(
			"member %x started %d times, but its start number %d was seen: restore nothing from copies, let it join with an empty directory",
			id.Member, id.Boot, last.number)}
	case last.incarnation.IsZero() || last.incarnation == id.Incarnation:
		return nil
	}
	return &RefusedError{Reason: ReasonClone, Detail: fmt.Sprintf(
		"two processes say they are start number %d of member %x: one runs on a copy of the other's directory, let it join with an empty one",
		id.Boot, id.Member)}
}
