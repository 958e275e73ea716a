package cluster

import (
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// While the loop does not come to what peers state, the last statement of each is kept, and nothing else.
func TestVouched_LoopIsBehind(t *testing.T) {
	posted := 0
	m := &membership{stated: make(map[uint64]*wire.Membership), membershipConfig: membershipConfig{post: func(func(*core.Core)) { posted++ }}}
	for index := range uint64(100) {
		m.vouched(2, &wire.Membership{Index: index})
	}
	m.vouched(3, &wire.Membership{Index: 7})
	if posted != 2 {
		t.Errorf("%d events for 2 peers", posted)
	}
	if at, other := m.stated[2].GetIndex(), m.stated[3].GetIndex(); at != 99 || other != 7 {
		t.Errorf("the statements at index %d and %d are kept, want 99 and 7", at, other)
	}
}
