package replica

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

func (c *Config) core(machine Machine) core.Config {
	return core.Config{
		ID:            c.Member,
		Incarnation:   c.Incarnation,
		Log:           c.Log,
		Machine:       machine,
		Tick:          c.Heartbeat,
		ElectionTicks: int(c.Election / c.Heartbeat),
		Rand:          newRand(c.Incarnation),
		Logger:        c.Logger,
		Keep:          cmp.Or(c.KeepEntries, KeepEntries),
		KeepBytes:     keepBytes,
		MaxCalls:      c.MaxCalls,
		MaxCallBytes:  c.MaxCallBytes,
		Budgets:       c.Budgets.Core,
		MayRemove:     c.MayRemove,
		Priority:      c.Priority,
		Quiet:         c.Number != 0,
	}
}

// KeepEntries and keepBytes bound the applied entries kept in the log, so that a member that was down for a while need
// not receive a snapshot: hours of an idle group, less than a second at full load.
const (
	KeepEntries = 10_000
	keepBytes   = 8 << 20
)

// newRand returns the core's source of random numbers, which differs between
// processes.
func newRand(incarnation wire.ID) *rand.Rand {
	return rand.New(rand.NewPCG(
		binary.BigEndian.Uint64(incarnation[:8]), binary.BigEndian.Uint64(incarnation[8:])))
}
