package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Backup writes the group's state at one index to w: everything that was acknowledged
// before the call, by whichever member. Any member can be asked, a standby too. [Restore]
// makes a new group of it. The backup has a version and checksums, and names the group,
// the member and the index. It is confidential: it contains the keys with their values,
// in clear.
//
// The backup of the default group has those of all further groups behind it; one that is deleted meanwhile may be left out. Each is the state at an
// index of its own: it is no single cut through all groups. A change in one group that followed a change in another one may be in
// the backup without that. The backup of a further group has that group alone.
//
// Backup reads the state in pieces, on the caller's goroutine, while the member works on:
// no call waits for w. It blocks until w has taken everything, ctx is done, or the node
// stops. Meanwhile the database keeps what it would otherwise discard.
//
// Without a quorum Backup still writes what this member has applied, after three election
// timeouts without a leader, and as many of further groups, and returns ErrUnavailable: the backup is complete, but may miss what the
// lost members acknowledged. ErrIncomplete: the backup broke off, and w has a part of it at most,
// which Restore refuses; the cause is that of w, ctx's, ErrClosed, ErrCorrupt, or that this member
// has no quorum and has never received the state of a further group. If w has returned
// an error of this package, only its text is kept, since it would state something else here. With ErrBusy, and
// with ErrGroupNotFound, and with ctx's error or ErrClosed alone, nothing was written.
//
// A [Client] has the member write it that it is connected to, and checks what it receives: only after nil and after
// ErrUnavailable w has a backup. ErrIncomplete also if the connection is lost meanwhile, or if ctx is done before
// the member has begun. ErrBusy while clients read 4 backups from that member. ErrUpgradeRequired, with
// ErrIncomplete: the member has a newer build, whose backups this one cannot check. w may take its time, within
// ctx: meanwhile the client receives 8 MiB more at most, and goes on with its locks. A member ends a backup of which
// nothing is read for 10 minutes, with ErrIncomplete.
func (g *Group) Backup(ctx context.Context, w io.Writer) error {
	err := cmp.Or(g.client.Usable(), contextError(ctx))
	if err == nil {
		err = g.admin.backUp(ctx, w)
	}
	return fault("backup", g.dir, err)
}

func (n *Node) backUp(ctx context.Context, w io.Writer) error {
	return n.member.Groups().Backup(ctx, w)
}

// Restore makes the directory the seed of a new group, with the state of a backup. The
// directory must be empty or missing; otherwise, and if the backup is damaged, truncated
// or of a newer build, Restore changes nothing. It reads r to its end first, and needs as
// much memory as a member with those states. [Open] with the same [Config.Group] then runs
// the new group, of one voter, from the directory.
//
// A backup of all groups makes a new cluster with all of them, under their names and with the state that the backup has of each. A further group
// that the backup does not have, since it was being deleted, is not in the new cluster. The backup of a further group alone makes a cluster with one
// group: the default one has the state, and Config.Group is that of the old cluster. What follows holds for each group.
//
// The new group has the keys, the limits that Resize has set, and what jobs retain of their runs; those
// under way are lost. What ran after the backup was made may run again. It has no session,
// process, check or member of the old group: all locks, permits, elections and queues
// have ended, without a lock-delay, and keys that a session had locked are released or
// deleted, by the session's behavior. It has a new cluster ID, so members of the old
// group are refused.
//
// Fences belong to the next epoch, so they are larger than all of the old group, whatever
// it granted after the backup, and PutFenced accepts them. Within the epoch they begin at
// the machine's clock: the time since 2026 in units of 10 µs. So two groups restored from one backup
// repeat no fence, as long as the clock does not go back between the two, and a group
// grants fewer than 100,000 fences a second on average since it was restored. Indexes of changes begin behind
// the same number: a compare-and-swap with an index from the lost time fails.
//
// The backup does not know how often the old group was restored or recovered since. If that was more than once, the
// old group's epoch, and with it its fences, are larger than those of the seed: run a member on it, close it and
// call Recover, as often as that was.
//
// If Restore is interrupted after that, by a crash, by ctx or by the disk, Open refuses the
// directory as unfinished, and another Restore into it begins again.
//
// Errors: ErrInvalid if the directory has content, or the clock shows a time before 2026;
// ErrCorrupt if the backup is damaged, truncated, or none; ErrUpgradeRequired if a newer
// build wrote it; ErrTooLarge after 65,535 recoveries; ctx's, that of r, and those of the
// file system.
func Restore(ctx context.Context, dir string, r io.Reader) error {
	return offline(ctx, "restore", dir, func(o cluster.Offline) error { return cluster.Restore(ctx, o, r) })
}

// Recover makes the directory of one member the seed of a new group, after the majority
// of the voters was lost permanently. Call [Verify] first, on the directory of each member
// that has survived: it reports how far each has got. Choose the one with the highest
// LastTerm and, among equal ones, the highest Last, and keep a copy of it. Compare the logs of the further groups
// that matter to you as well: another directory may have more of one. One with Applied 0, whose state the member has never received, is recovered empty.
//
// The new group is as after [Restore]: keys and limits are kept, all sessions have ended,
// the epoch is the next one, and the members of the old group are refused. Of the old
// group, no process may run any more: Recover cannot stop it. Recover one directory only:
// two would be two groups.
//
// The new group has all that is in the member's log, also what is not known to be
// committed there: the lost members may have acknowledged it. So a call that returned
// ErrUnknown may have taken effect, and even one that was refused, if the lost members
// had replaced entries of this log and decided it again. What is missing is what they
// acknowledged and this member never received.
//
// Recover changes the directory in one step: after a crash it is as before, or it is the
// new group's. It refuses, with no change, a directory that is in use. If no member has
// started on the seed yet, another Recover has no effect.
//
// Errors: ErrInvalid if the member has never belonged to a group, or the clock shows a
// time before 2026; ErrRemoved if it was removed; ErrCorrupt if the directory is damaged,
// has lost entries that it acknowledged, or differs from the group; ErrUpgradeRequired;
// ErrTooLarge after 65,535 recoveries; ctx's, and those of the file system.
func Recover(ctx context.Context, dir string) error {
	return offline(ctx, "recover", dir, func(o cluster.Offline) error { return cluster.Recover(ctx, o) })
}

var errNoDir = fmt.Errorf("%w: no directory: want its path, got %q", ErrInvalid, "")

// offline runs f on a directory that no node of this process runs on.
func offline(ctx context.Context, op, dir string, f func(cluster.Offline) error) error {
	var err error = errNoDir
	if dir != "" {
		err = contextError(ctx)
	}
	if err == nil {
		err = f(offlineAt(ctx, dir))
	}
	return fault(op, dir, err)
}

func offlineAt(ctx context.Context, dir string) cluster.Offline {
	seams := cluster.SeamsFrom(ctx)
	return cluster.Offline{
		Dir: dir, FS: seams.FS,
		LoadMachine: func(state iter.Seq2[[]byte, []byte]) (cluster.Machine, error) {
			return machine.LoadAt(state, cmp.Or(seams.FeatureLevel, wire.FeatureLevel))
		},
		FirstStateOf: machine.FirstStateOf,
		CheckSeed:    func(m cluster.Machine) error { return machine.CheckSeed(m.(*machine.Machine)) },
		SeedMachine: func(m cluster.Machine, in fact.Seeding) (iter.Seq2[[]byte, []byte], error) {
			count, err := firstCount(time.Now())
			if err != nil {
				return nil, err
			}
			return m.(*machine.Machine).Seed(count, in)
		},
	}
}

// fenceUnit is the time that one fence stands for in the first count of a new group.
const fenceUnit = 10 * time.Microsecond

var errClock = errors.New("the clock of this machine is wrong")

// firstCount returns the count at which the fences of a new group begin. Two groups from
// one state have the same epoch, so they must begin at different counts; the clock is all
// that the second one can know of the first.
func firstCount(now time.Time) (uint64, error) {
	count := now.Sub(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)) / fenceUnit
	if count <= 0 || count >= maxFenceCount {
		return 0, fmt.Errorf("%w: %w: it shows %v, want 2026 to 2114: set it", ErrInvalid, errClock, now.UTC().Format(time.RFC3339))
	}
	return uint64(count), nil
}
