package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// The feature level of the group. It begins at the highest that all founders support. Each registration states the highest level that its
// process supports; the leader raises the group's when every member supports a higher one.
// A member that meets a higher level than its own stops with ErrUpgradeRequired.

// level returns the highest feature level that this process claims to support.
func (h Seams) level() uint32 { return cmp.Or(h.FeatureLevel, wire.FeatureLevel) }

// levelTicks is how often the leader looks at the members' levels.
const levelTicks = 10

// considerLevel raises the feature level if this member leads and all support a higher
// one. It runs on the loop's goroutine.
func (m *Member) considerLevel() {
	s := m.core.Status()
	if m.ticks%levelTicks != 0 || !s.Leads || !s.Registered || m.raising.Load() {
		return
	}
	level := m.core.Machine().NextLevel(slices.Concat(s.Membership.GetVoters(), s.Membership.GetLearners()))
	if level == 0 {
		return
	}
	m.raising.Store(true)
	m.routine("feature level", func() {
		defer m.raising.Store(false)
		if err := m.RaiseLevel(m.lifetime, level, false); err != nil && m.lifetime.Err() == nil {
			m.log.Warn("feature level not raised", "level", level, "error", err)
			return
		}
		m.log.Info("feature level raised", "level", level)
	})
}

// RaiseLevel raises the group's feature level. It blocks until the group has decided or ctx
// is done. Unless force is set, the group refuses a level that a member does not support.
// Force is an operator's order, for members that will not return: those that do, with an
// old build, stop with ErrUpgradeRequired. There is no public door to it yet.
func (m *Member) RaiseLevel(ctx context.Context, level uint32, force bool) error {
	conf := m.status.Load().conf
	members := slices.Concat(conf.GetVoters(), conf.GetLearners())
	reply, err := m.execute(ctx, m.cfg.Commands.RaiseLevel(level, members, force))
	if err == nil && reply.GetCode() != wire.Code_OK {
		err = fmt.Errorf("%w %d: %s", ErrLevel, level, reply.GetDetail())
	}
	return err
}

// Level is FeatureLevel as of the last progress of this member. It does not block.
func (m *Member) Level() uint32 { return m.status.Load().level }

// FeatureLevel returns the group's feature level as far as this member has applied the log.
func (m *Member) FeatureLevel(ctx context.Context) (level uint32, err error) {
	err = m.ReadStale(ctx, func(machine Machine) { level, _ = machine.Level() })
	return level, err
}
