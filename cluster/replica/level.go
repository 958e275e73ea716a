package replica

import (
	"context"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// The feature level of the group. It begins at the highest that all founders support. Each registration states the highest level that its
// process supports; the leader raises the group's when every member supports a higher one.
// A member that meets a higher level than its own stops with ErrUpgradeRequired.

// levelTicks is how often the leader looks at the members' levels.
const levelTicks = 10

// considerLevel raises the feature level if this member leads and all support a higher
// one. A further group has the level of the default one. It runs on the loop's goroutine.
func (r *Replica) considerLevel() {
	s := r.core.Status()
	if r.ticks%levelTicks != 0 || !s.Leads || !s.Registered || r.cfg.Number != 0 || r.raising.Load() {
		return
	}
	level := r.core.Machine().NextLevel(slices.Concat(s.Membership.GetVoters(), s.Membership.GetLearners()))
	if level == 0 {
		return
	}
	r.raising.Store(true)
	r.cfg.Routine("feature level", func() {
		defer r.raising.Store(false)
		if err := r.RaiseLevel(r.cfg.Lifetime, level, false); err != nil && r.cfg.Lifetime.Err() == nil {
			r.log.Warn("feature level not raised", "level", level, "error", err)
			return
		}
		r.log.Info("feature level raised", "level", level)
	})
}

// RaiseLevel raises the group's feature level. It blocks until the group has decided or ctx
// is done. Unless force is set, the group refuses a level that a member does not support.
// Force is an operator's order, for members that will not return: those that do, with an
// old build, stop with ErrUpgradeRequired. There is no public door to it yet.
func (r *Replica) RaiseLevel(ctx context.Context, level uint32, force bool) error {
	conf := r.status.Load().Conf
	members := slices.Concat(conf.GetVoters(), conf.GetLearners())
	reply, err := r.Execute(ctx, r.cfg.Commands.RaiseLevel(level, members, force))
	if err == nil && reply.GetCode() != wire.Code_OK {
		err = fmt.Errorf("%w %d: %s", ErrLevel, level, reply.GetDetail())
	}
	return err
}

// Level is FeatureLevel as of the last progress of this member. It does not block.
func (r *Replica) Level() uint32 { return r.status.Load().Level }

// FeatureLevel returns the group's feature level as far as this member has applied the log.
func (r *Replica) FeatureLevel(ctx context.Context) (level uint32, err error) {
	err = r.ReadStale(ctx, func(machine Machine) { level, _ = machine.Level() })
	return level, err
}
