package client

import (
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// reenter adds a hold to the handle's own, of a tenure.
func (l *Lock) reenter(own *Hold) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h := l.hold; {
	case h != own: // it was released meanwhile
		return 0, errAnotherTenure
	case h.isLost():
		return 0, &Fault{Kind: Lost}
	case h.count >= machine.MaxHolds, l.limit != 0 && h.count >= int(l.limit):
		return 0, refusal(&wire.Reply{Code: wire.Code_LIMIT_REACHED})
	default:
		h.count++
		return h.fence, nil
	}
}
