package cluster

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/internal/version"
	"github.com/conclave-go/conclave/internal/wire"
)

// Seams replaces parts of a member in a test. The zero value replaces nothing. It is
// passed in the context of Open, so that the public configuration does not expose it.
type Seams struct {
	FS             vfs.FS                                                       // instead of the operating system's
	TableBytes     uint64                                                       // of the database's tables in memory
	KeepEntries    uint64                                                       // applied entries kept in the log
	Lookup         func(ctx context.Context, host string) ([]netip.Addr, error) // instead of the name service; also with Config.Dial
	IncarnationTTL time.Duration                                                // of the registration of a process
	FeatureLevel   uint32                                                       // the highest that the process claims to support
	Build          string                                                       // the version that the process claims to have
	Slow           int                                                          // a factor for the intervals of gossip and of keep-alives
	Effects        func(*Effects)                                               // runs on the loop before effects are carried out, and may drop or repeat messages
	Started        func(*Member)                                                // runs before Start returns the member
}

// level returns the highest feature level that this process claims to support.
func (h Seams) level() uint32 { return cmp.Or(h.FeatureLevel, wire.FeatureLevel) }

// build returns the version that this process claims to have.
func (h Seams) build() string { return cmp.Or(h.Build, version.Current()) }

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

type crashKey struct{}

// WithCrash returns a context that makes Close of a node skip the graceful shutdown, so
// that the group has to detect the stop as it detects a crash.
func WithCrash(ctx context.Context) context.Context {
	return context.WithValue(ctx, crashKey{}, true)
}

// IsCrash reports whether ctx comes from WithCrash.
func IsCrash(ctx context.Context) bool { return ctx.Value(crashKey{}) != nil }
