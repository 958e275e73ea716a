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

// lowestLevel is that of a group and of a founder that states none.
const lowestLevel = 1

// founderLevel returns the highest feature level at which a founder can form a group. One of a
// build that states none begins with an empty state, whatever the proposal says.
func (m *Member) founderLevel(id uint64) uint32 {
	if id == m.identity.Member {
		return m.seams.level()
	}
	return max(m.candidates.process(id).GetFeatureLevel(), lowestLevel)
}

// commonLevel returns the feature level at which founders form a group; 0 for the lowest, so that
// the proposal is that of a build which knows no other.
func (m *Member) commonLevel(founders []*wire.Founder) uint32 {
	level := m.seams.level()
	for _, f := range founders {
		level = min(level, m.founderLevel(f.GetMember()))
	}
	if level == lowestLevel {
		return 0
	}
	return level
}

// levelObjection returns why this member refuses the feature level of a proposal; "": it does
// not. A founder may have started again with another build.
func (m *Member) levelObjection(p *wire.Proposal) string {
	for _, f := range p.GetFounders() {
		if supported := m.founderLevel(f.GetMember()); p.GetFeatureLevel() > supported {
			return fmt.Sprintf("the group would begin at feature level %d, and founder %s (%v at %s) supports %d",
				p.GetFeatureLevel(), f.GetName(), wire.MemberID(f.GetMember()), f.GetAdvertise(), supported)
		}
	}
	return ""
}

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
