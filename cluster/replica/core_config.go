package replica

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

func (r *Replica) coreConfig(machine Machine) core.Config {
	return core.Config{
		ID:            r.cfg.Member,
		Incarnation:   r.cfg.Incarnation,
		Log:           r.cfg.Log,
		Machine:       machine,
		Tick:          r.cfg.Heartbeat,
		ElectionTicks: int(r.cfg.Election / r.cfg.Heartbeat),
		Rand:          newRand(r.cfg.Incarnation),
		Logger:        r.log,
		Keep:          cmp.Or(r.cfg.KeepEntries, KeepEntries),
		KeepBytes:     keepBytes,
		MaxCalls:      r.cfg.MaxCalls,
		MaxCallBytes:  r.cfg.MaxCallBytes,
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
