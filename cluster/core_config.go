package cluster

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

func (m *Member) coreConfig(machine Machine) core.Config {
	return core.Config{
		ID:            m.identity.Member,
		Incarnation:   m.identity.Incarnation,
		Log:           m.raftLog,
		Machine:       machine,
		Tick:          m.cfg.Heartbeat,
		ElectionTicks: int(m.cfg.Election / m.cfg.Heartbeat),
		Rand:          newRand(m.identity.Incarnation),
		Logger:        m.log,
		Keep:          cmp.Or(m.seams.KeepEntries, keepEntries),
		KeepBytes:     keepBytes,
		MaxCalls:      m.cfg.MaxCalls,
		MaxCallBytes:  m.cfg.MaxCallBytes,
	}
}

// The applied entries kept in the log, so that a member that was down for a while need
// not receive a snapshot: hours of an idle group, less than a second at full load.
const (
	keepEntries = 10_000
	keepBytes   = 8 << 20
)

// newRand returns the core's source of random numbers, which differs between
// processes.
func newRand(incarnation wire.ID) *rand.Rand {
	return rand.New(rand.NewPCG(
		binary.BigEndian.Uint64(incarnation[:8]), binary.BigEndian.Uint64(incarnation[8:])))
}
