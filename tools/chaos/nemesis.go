//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// nemesis is a kind of fault. inflict injects it, again and again, until ctx is done,
// and returns an error if the fault or the recovery from it is not what is documented.
type nemesis struct {
	name, about string
	inflict     func(ctx context.Context, f *faults) error
}

func nemeses() []nemesis {
	return []nemesis{
		{"none", "no fault: what the others compare with", none},
		{"kill", "kill -9 of one member, half of the time of the leader; it starts again after a while", kill},
		{"kill-all", "kill -9 of all members at once; all start again", killAll},
		{"stop", "SIGSTOP of one or two members, often of the leader, for up to 8 s, then SIGCONT", stop},
		{"partition-halves", "the members are split into a majority and a minority", partitionHalves},
		{"partition-one", "one member, half of the time the leader, is separated from all others", partitionOne},
		{"partition-one-way", "one member receives nothing, or nothing that it sends arrives", partitionOneWay},
		{"partition-bridge", "two halves that only one member can talk to", partitionBridge},
		{"partition-ring", "each member can talk to its two neighbours only", partitionRing},
		{"firewall", "a firewall at one member drops what another one dials, which must report it", firewall},
		{"loss", "random loss of 5 to 40 % of received packets, at one member or at all", loss},
		{"reset", "TCP resets of all established connections, at one member or at all", reset},
		{"full-disk", "a member's directory is on a small file system that fills up, and is emptied later", fullDisk},
		{"wiped-directory", "a member is killed and its directory deleted; it comes back as a new member", wipedDirectory},
		{"rolled-back-directory", "a member's directory is replaced by an older copy, which must be refused", rolledBackDirectory},
		{"churn", "members join, leave, are killed, and are replaced by new ones", churn},
		{"restart-workers", "members are restarted in turn, by SIGTERM or kill -9: the shards of those that are back within Settle must end nowhere else", restartWorkers},
		{"rolling-upgrade", "each member in turn is shut down gracefully and started again, with the build of -binary2 if given", rollingUpgrade},
	}
}

func none(ctx context.Context, _ *faults) error {
	<-ctx.Done()
	return nil
}

// errUnsupported: the build under test cannot do what the nemesis needs.
var errUnsupported = errors.New("not supported by this build")

// faults is what a nemesis has to work with.
type faults struct {
	*group
	random *rand.Rand
}

// between waits for a random time, at most until ctx is done.
func (f *faults) between(ctx context.Context, low, high time.Duration) {
	_ = wait(ctx, low+time.Duration(f.random.Int64N(int64(high-low)))) // the caller looks at ctx
}

// victim returns a member: half of the time the leader of one of the groups, if there is one. Groups have leaders of their own.
func (f *faults) victim() *member {
	if leader := f.leaderOf(f.groups[f.random.IntN(len(f.groups))]); leader != nil && leader.index < f.founders && f.random.IntN(2) == 0 {
		return leader
	}
	return f.members[f.random.IntN(f.founders)]
}

// shuffled returns the members that formed the group, in random order.
func (f *faults) shuffled() []*member {
	all := make([]*member, 0, f.founders)
	for _, i := range f.random.Perm(f.founders) {
		all = append(all, f.members[i])
	}
	return all
}

// rounds calls round until ctx is done or it fails. What the end of ctx interrupted is
// no failure.
func rounds(ctx context.Context, round func() error) error {
	for ctx.Err() == nil {
		if err := ignoreEnd(ctx, round()); err != nil {
			return err
		}
	}
	return nil
}

// ignoreEnd drops the error of a step that the end of the nemesis interrupted.
func ignoreEnd(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return nil
	}
	return err
}
