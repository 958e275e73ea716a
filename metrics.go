package conclave

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/metrics"
	"github.com/conclave-go/conclave/internal/survey"
)

// Metrics is what a node has counted and measured since Open, and what it has at the moment: of the default group and, in Groups, of
// the further ones. Package conclaveprom makes a Prometheus collector of it.
type Metrics struct {
	Groups []GroupMetrics // further groups that this node has a replica of, by name

	Calls []CallMetrics // one for each kind, in their order

	CallsPending     int    // calls of this process that have no outcome yet
	CallBytesPending int    // of their commands
	CallsRefused     uint64 // at once, for Limits.Calls or Limits.CallBytes, with ErrBusy
	CommandsResent   uint64 // commands sent again, as their outcomes had not come in time
	LingeringGrants  uint64 // of locks with [Linger] to handles of this node

	// EntryCommands has how many commands each entry has that this node has proposed as
	// the leader. Many mean that callers share entries.
	EntryCommands Histogram
	// CommitSeconds has how long each of these entries took from the proposal until it was
	// applied here: until it was on the disks of a majority, this node's included.
	CommitSeconds Histogram
	// WriteSeconds has how long each batch of writes to this node's disk took. One batch is
	// under way at a time; what arrives meanwhile shares the next one.
	WriteSeconds Histogram
	// RenewalMarginSeconds has for how long each session of this node would have lasted when
	// its renewal was acknowledged, but for its checks. Renewals are sent each third of the TTL, so with a
	// healthy group it is about two thirds of it. What comes near 0 is about to be lost.
	RenewalMarginSeconds Histogram

	LeaderChanges      uint64 // leaders that this node has followed, or was
	SnapshotsSent      uint64
	SnapshotBytesSent  uint64 // of snapshots that failed or are being sent, too
	SnapshotsInstalled uint64
	// GroupTime is the group's own clock, as far as entries are applied here. Deadlines of
	// sessions follow it. Compared with a wall clock it stands still while the group is
	// idle or has no leader.
	GroupTime time.Duration
	// Stalled is for how long the oldest write to this node's disk, or the oldest entry that
	// this node has proposed as the leader, has been under way. WriteSeconds and
	// CommitSeconds do not have it before it ends.
	Stalled time.Duration
	Voters  int // members that vote, in the configuration that this node has
	// DiskBytes is the size of the node's database, up to 10 s ago: on its disk, or without
	// Dir in memory.
	DiskBytes uint64
	// DiskFree is what the process may still write to the file system of Dir, up to 10 s ago; 0 also
	// without Dir. DiskNeeded is what the next logs, flush and compaction may take before they free
	// anything: with less free space [Node.Health] warns. See docs/OPERATIONS.md.
	DiskFree, DiskNeeded uint64

	Held      int    // live holds of this node: locks, sets, elections, permits, runs of jobs, shards, and locks that linger
	HoldsLost uint64 // see Events.LockLost
	// Shards is how many this node works on by [Shards.Run]. ShardsMoved counts those that it was asked to release, because they
	// move or their number changes; ShardsOverdue those whose work had not returned within [Grace], and may go on beside the next owner's.
	Shards                     int
	ShardsMoved, ShardsOverdue uint64
	// GroupShards is how many shards the sets of the group have, as applied here, and ShardsWithoutOwner how many of those have no owner:
	// they are between two owners, in a lock-delay, or wait for the return of a process ([Settle]). A set that no process works on, and
	// no shard of which waits, does not exist. ShardSecondsWithoutOwner is the time in seconds that shards have been without an owner since
	// Open, added up over the shards, by a look at each heartbeat.
	GroupShards, ShardsWithoutOwner int
	ShardSecondsWithoutOwner        float64
	Jobs                            []JobMetrics // one for each of Config.MeasuredJobs, in their order, and one for all others
	// LogLinesDropped is how many log lines Config.Logger did not take in time.
	LogLinesDropped uint64
	Own             int // live sessions of this node
	Connected       int // clients that are connected to this node
	// What the group has, as applied here at the last heartbeat: sessions, locks and
	// elections that are held or in a lock-delay, semaphores in use or with a limit from
	// Resize, waiters in all queues, keys, checks, and registered clients.
	Sessions, Locks, Elections, Semaphores, Waiters, Keys, Checks, Clients int
}

// GroupMetrics is what [Metrics] has of a further group.
type GroupMetrics struct {
	Name   string
	Number uint32
	Leader MemberID // 0: this node knows none
	Leads  bool     // this node leads the group
	Term   uint64
	// Commit is the index of the last entry of the group's log known to be committed, and Applied of the last one applied here.
	Commit, Applied uint64
	// Metrics is of the group alone. Calls has the kinds that have been called, and Jobs those of Config.MeasuredGroupJobs and one for all others.
	// What a process has once is 0: Connected, LogLinesDropped, DiskBytes, DiskFree and DiskNeeded.
	Metrics
}

// Histogram is how many values fell into each bucket.
type Histogram struct {
	Bounds []float64 // the upper bounds, ascending; each belongs to its bucket
	Counts []uint64  // of each bucket; the last one has the values beyond the last bound
	Sum    float64   // of all values
}

// Count returns how many values there are.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// CallKind is a kind of call that a node measures.
type CallKind int

// The kinds of call. Do, Run, Locker, Once and Every make the calls that they stand for.
const (
	CallLock          CallKind = iota + 1 // FencedLock.Lock, RWLock.Lock, LockSet.Lock
	CallTryLock                           // FencedLock.TryLock, RWLock.TryLock, LockSet.TryLock
	CallUnlock                            // FencedLock.Unlock, RWLock.Unlock, LockSet.Unlock
	CallAcquire                           // Semaphore.Acquire
	CallTryAcquire                        // Semaphore.TryAcquire
	CallRelease                           // Permit.Release
	CallCampaign                          // Election.Campaign
	CallResign                            // Election.Resign
	CallRead                              // Get, List, Keys and Index of KV
	CallWrite                             // writes of KV, transactions included
	CallRLock                             // RWLock.RLock
	CallTryRLock                          // RWLock.TryRLock
	CallRUnlock                           // RWLock.RUnlock
	CallDowngrade                         // RWLock.Downgrade
	CallExtend                            // Extend of FencedLock, RWLock, LockSet and Permit
	CallStartRun                          // the wait of Job.Once and Job.Every for a run
	CallEndRun                            // the end of a run
	CallJoinShards                        // the begin of Shards.Run, and its next one after a loss of the session
	CallReleaseShards                     // a release of shards by Shards.Run, of one or several

	lastCall = CallReleaseShards
)

// String returns the kind in lower case, as "try_lock".
func (k CallKind) String() string {
	names := [lastCall]string{"lock", "try_lock", "unlock", "acquire", "try_acquire", "release", "campaign", "resign", "read", "write",
		"rlock", "try_rlock", "runlock", "downgrade", "extend", "start_run", "end_run", "join_shards", "release_shards"}
	if k >= 1 && k <= lastCall {
		return names[k-1]
	}
	return fmt.Sprintf("CallKind(%d)", int(k))
}

// CallResult is how calls end, in groups of errors.
type CallResult int

// The results of calls, by the first of these errors that the call's error wraps.
const (
	// ResultOK is no error of the group: a read of a key that does not exist is ok.
	ResultOK          CallResult = iota + 1
	ResultUnknown                // ErrUnknown
	ResultUnavailable            // ErrUnavailable
	ResultBusy                   // ErrBusy
	ResultClosed                 // ErrClosed
	ResultLost                   // ErrLockOwnershipLost, ErrSessionExpired
	ResultInvalid                // ErrInvalid, ErrTooLarge
	ResultCanceled               // the context's
	ResultRefused                // any other: what the group has does not admit the call, as ErrLocked
)

// String returns the result in lower case, as "unavailable".
func (r CallResult) String() string {
	names := [ResultRefused]string{"ok", "unknown", "unavailable", "busy", "closed", "lost", "invalid", "canceled", "refused"}
	if r >= 1 && r <= ResultRefused {
		return names[r-1]
	}
	return fmt.Sprintf("CallResult(%d)", int(r))
}

// JobMetrics is about the runs of one of Config.MeasuredJobs, or MeasuredGroupJobs, or, with Name "", of all other jobs.
type JobMetrics struct {
	Name string
	// Runs counts those that have ended in this process, by result: JobDone, JobFailed and JobLost. All three are in it. A run whose result
	// was not recorded for another reason, as the node was closed, counts as lost; one that ended before its function was called does not count.
	Runs map[JobResult]uint64
	// Succeeded says that a run of the job, in whatever process, is known to have ended as JobDone: the group retained it at
	// any time since Open, see [Job.Info]. SinceSuccess is how long ago the last one ended: by this process's clock from when
	// that was applied here, so it grows without a leader too, and by group time before, which stands still while a further group has nothing to do. False with Name "".
	Succeeded    bool
	SinceSuccess time.Duration
}

func jobMetrics(jobs []survey.Job) (all []JobMetrics) {
	for _, j := range jobs {
		all = append(all, JobMetrics{
			Name: j.Name, Runs: map[JobResult]uint64{JobDone: j.Done, JobFailed: j.Failed, JobLost: j.Lost},
			Succeeded: j.Succeeded, SinceSuccess: j.Since,
		})
	}
	return all
}

// CallMetrics is about the calls of a kind that have returned.
type CallMetrics struct {
	Kind    CallKind
	Results map[CallResult]uint64 // all results are in it
	Seconds Histogram             // from call to return, with the wait for other owners
}

// calls measures the calls of a node. No call waits for it.
type calls struct {
	opened time.Time // what time.Since asks of the clock is half of what time.Now does
	kinds  [lastCall]callKind
}

type callKind struct {
	results [ResultRefused]metrics.Counter
	seconds *metrics.Histogram
}

func newCalls() *calls {
	c := &calls{opened: time.Now()}
	for i := range c.kinds {
		c.kinds[i].seconds = metrics.NewDurations()
	}
	return c
}

// begin returns the present, for returned.
func (c *calls) begin() time.Duration { return time.Since(c.opened) }

// returned notes that a call of a kind returns.
func (c *calls) returned(kind CallKind, began time.Duration, err error) {
	k := &c.kinds[kind-1]
	k.results[resultOf(err)-1].Add(1)
	k.seconds.ObserveDuration(c.begin() - began)
}

func resultOf(err error) CallResult {
	if err == nil {
		return ResultOK
	}
	err = convert(err)
	for _, r := range []struct {
		result CallResult
		of     []error
	}{
		{ResultUnknown, []error{ErrUnknown}},
		{ResultUnavailable, []error{ErrUnavailable}},
		{ResultBusy, []error{ErrBusy}},
		{ResultClosed, []error{ErrClosed}},
		{ResultLost, []error{ErrLockOwnershipLost, ErrSessionExpired}},
		{ResultInvalid, []error{ErrInvalid, ErrTooLarge}},
		{ResultCanceled, []error{context.Canceled, context.DeadlineExceeded}},
	} {
		if slices.ContainsFunc(r.of, func(of error) bool { return errors.Is(err, of) }) {
			return r.result
		}
	}
	return ResultRefused
}

// metrics returns those of each kind, or of the kinds with a call that has returned.
func (c *calls) metrics(ofAll bool) (all []CallMetrics) {
	for i := range c.kinds {
		k, sum := &c.kinds[i], uint64(0)
		results := make(map[CallResult]uint64)
		for j := range k.results {
			results[CallResult(j+1)] = k.results[j].Load()
			sum += results[CallResult(j+1)]
		}
		if ofAll || sum > 0 {
			all = append(all, CallMetrics{Kind: CallKind(i + 1), Results: results, Seconds: seconds(k.seconds)})
		}
	}
	return all
}

// groupState is what this process knows of the state of a group, by a look at each heartbeat. The zero value is ready.
type groupState struct {
	counts atomic.Pointer[machine.Counts]
	shards survey.Shards
}

// look notes the sizes of the group's state and what becomes of its jobs and shards, on the goroutine that applies the log.
func (s *groupState) look(of cluster.Machine, jobs *survey.Jobs) {
	m := of.(*machine.Machine)
	if c := m.Counts(); s.counts.Load() == nil || *s.counts.Load() != c {
		s.counts.Store(&c)
	}
	jobs.Look(m)
	s.shards.Look(m)
}

// Metrics returns the node's metrics. It asks neither a group nor the disk, and does not
// block. After Close it returns the last ones.
func (n *Node) Metrics() Metrics {
	m := metricsOf(n.Group, n.replica, &n.state)
	m.Calls = n.calls.metrics(true)
	member := n.member.Metrics()
	disk := member.Disk()
	m.DiskBytes, m.DiskFree, m.DiskNeeded = disk.Used, disk.Free, disk.Needed
	m.LogLinesDropped, m.Connected = n.app.lines.Dropped(), int(member.Clients.Load())
	m.Groups = n.groups.metrics()
	return m
}

// metricsOf returns what is measured of a group alone, but for the calls.
func metricsOf(g *Group, r *replica.Replica, s *groupState) Metrics {
	own, member, status := g.client.Metrics(), r.Metrics(), r.Status()
	pending, pendingBytes := r.Backlog()
	sessions, holds := g.client.Sizes()
	shards := s.shards.Read()
	var group machine.Counts
	if c := s.counts.Load(); c != nil {
		group = *c
	}
	return Metrics{
		CallsPending: pending, CallBytesPending: pendingBytes, CallsRefused: member.Refused.Load(),
		CommandsResent: member.Resent.Load(), LingeringGrants: own.Kept.Load(),
		EntryCommands: histogram(member.Commands, 1), CommitSeconds: seconds(member.Commit),
		WriteSeconds: seconds(member.Writes), RenewalMarginSeconds: seconds(own.Margin),
		LeaderChanges: member.Leaders.Load(),
		SnapshotsSent: member.SnapshotsSent.Load(), SnapshotBytesSent: member.SnapshotBytesSent.Load(),
		SnapshotsInstalled: status.Installed, Stalled: status.Stalled, Voters: status.Voters(),
		GroupTime: time.Duration(member.GroupTime.Load()),

		Shards: int(own.Shards.Load()), ShardsMoved: own.ShardsMoved.Load(), ShardsOverdue: own.ShardsOverdue.Load(),
		GroupShards: shards.All, ShardsWithoutOwner: shards.WithoutOwner, ShardSecondsWithoutOwner: shards.Seconds,
		Jobs: jobMetrics(g.jobs.Read()),
		Held: holds, HoldsLost: own.Lost.Load(), Own: sessions,
		Sessions: group.Sessions, Locks: group.Locks, Elections: group.Elections, Semaphores: group.Semaphores,
		Waiters: group.Waiters, Keys: group.Keys, Checks: group.Checks, Clients: group.Clients,
	}
}

// metrics returns those of each group with a replica that runs, by name.
func (g *nodeGroups) metrics() (list []GroupMetrics) {
	for _, f := range g.running() {
		s := f.replica.Status()
		m := GroupMetrics{
			Name: f.name, Number: f.number, Leader: MemberID(s.Leader), Leads: s.Leader == uint64(g.node.id),
			Term: s.Term, Commit: s.Commit, Applied: s.Applied, Metrics: metricsOf(f.group, f.replica, &f.state),
		}
		m.Calls = f.group.calls.metrics(false)
		list = append(list, m)
	}
	return list
}

func seconds(h *metrics.Histogram) Histogram { return histogram(h, 1e-9) }

// histogram converts a histogram of values in that unit.
func histogram(h *metrics.Histogram, unit float64) Histogram {
	v := h.Read()
	bounds := make([]float64, len(v.Bounds))
	for i, b := range v.Bounds {
		bounds[i] = float64(b) * unit
	}
	return Histogram{Bounds: bounds, Counts: v.Counts, Sum: float64(v.Sum) * unit}
}

// maxMeasuredJobs bounds Config.MeasuredJobs and MeasuredGroupJobs together.
const maxMeasuredJobs = 64

func validMeasuredJobs(c *Config) (faults []error) {
	sum := len(c.MeasuredJobs)
	for _, names := range c.MeasuredGroupJobs {
		sum += len(names)
	}
	if sum > maxMeasuredJobs {
		return []error{fmt.Errorf("%w MeasuredJobs: want at most %d with those of MeasuredGroupJobs, got %d", ErrInvalid, maxMeasuredJobs, sum)}
	}
	faults = validJobNames("MeasuredJobs", c.MeasuredJobs)
	for _, group := range slices.Sorted(maps.Keys(c.MeasuredGroupJobs)) {
		if group == c.Group {
			faults = append(faults, fmt.Errorf("%w MeasuredGroupJobs: %q is the default group: name its jobs in MeasuredJobs", ErrInvalid, group))
		}
		if err := validName(group); err != nil {
			faults = append(faults, fmt.Errorf("MeasuredGroupJobs: %w", err))
		}
		faults = append(faults, validJobNames("MeasuredGroupJobs", c.MeasuredGroupJobs[group])...)
	}
	return faults
}

func validJobNames(field string, names []string) (faults []error) {
	for i, name := range names {
		if err := validName(name); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", field, err))
		}
		if slices.Contains(names[:i], name) {
			faults = append(faults, fmt.Errorf("%w %s: %q is there twice", ErrInvalid, field, name))
		}
	}
	return faults
}
