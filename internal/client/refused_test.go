package client

import (
	"errors"
	"runtime"
	"testing"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// What the group refuses takes no memory for its command: under overload most calls are
// refused, and copying their values would slow down the others.
func TestExec_RefusedCommandNotEncoded(t *testing.T) {
	const calls, size = 100, 512 << 10
	c := New(Config{})
	c.group = refusing{}
	write := &wire.Write{Ops: []*wire.KeyOp{{Key: "x", Value: make([]byte, size)}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if _, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_Write{Write: write}}); !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > calls*size/10 {
		t.Errorf("%d refused commands of %d bytes took %d bytes", calls, size, got)
	}
}

const errRefused tickets.BusyError = "refused"

// refusing is a group that is at its limit.
type refusing struct{ Group }

func (refusing) Submit(_ int, _ func() []byte, c Call, _ bool) { c.Fail(errRefused) }
