package cluster

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Seams replaces parts of a member for a test. The zero value changes nothing. It
// travels in the context that a node is opened with, so that the public
// configuration has no door for it.
type Seams struct {
	FS             vfs.FS         // instead of the operating system's
	KeepEntries    uint64         // kept in the log behind the applied one
	IncarnationTTL time.Duration  // of the registration of a process
	Slow           int            // a factor for the intervals of gossip and of keep-alives
	Effects        func(*Effects) // runs on the loop before effects are carried out, and may drop or repeat messages
	Started        func(*Member)  // runs before Start returns the member
}

type seamsKey struct{}

// WithSeams returns a context that carries s to Start.
func WithSeams(ctx context.Context, s Seams) context.Context {
	return context.WithValue(ctx, seamsKey{}, s)
}

// SeamsFrom returns what WithSeams put into ctx, or the zero value.
func SeamsFrom(ctx context.Context) Seams {
	s, _ := ctx.Value(seamsKey{}).(Seams)
	return s
}
