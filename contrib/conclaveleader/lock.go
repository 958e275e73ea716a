package conclaveleader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/conclave-go/conclave"
)

var _ resourcelock.Interface = (*Lock)(nil)

// prefix precedes the names of elections in the keys.
const prefix = "leaderelection/"

// Lock implements [resourcelock.Interface]. The value of its key is the JSON of a
// [coordination.LeaseSpec], whose times are in microseconds. A Lock belongs to one LeaderElector. All
// methods are safe for concurrent use.
type Lock struct {
	kv     *conclave.KV
	key    string
	name   string
	config resourcelock.ResourceLockConfig

	mu        sync.Mutex
	index     uint64         // guarded by mu; of the record that was read or written last; 0: none
	holder    string         // guarded by mu; in that record
	attempted []byte         // guarded by mu; the value of the last write, whatever its outcome
	leads     bool           // guarded by mu; the record with that index was written by this Lock, as the leader's
	fence     conclave.Fence // guarded by mu; while it leads
	lease     time.Duration  // guarded by mu; LeaseDuration while it leads
	deadline  time.Time      // guarded by mu; of the lease, by this process's clock
}

// New returns the lock of the election of that name, under the key "leaderelection/" and the
// name, for a candidate. config.Identity must differ from that of each other candidate.
func New(group conclave.Access, name string, config resourcelock.ResourceLockConfig) *Lock {
	return &Lock{kv: group.KV(), key: prefix + name, name: name, config: config}
}

// Get implements [resourcelock.Interface]. It is linearizable. If there is no record, the error is
// one that IsNotFound of k8s.io/apimachinery/pkg/api/errors recognizes.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel, err := l.bound(ctx)
	if err != nil {
		return nil, nil, l.fault("get", err)
	}
	defer cancel()
	e, err := l.kv.Get(ctx, l.key)
	if errors.Is(err, conclave.ErrKeyNotFound) {
		l.read(conclave.Entry{}, "")
		return nil, nil, l.status(meta.StatusReasonNotFound, err)
	}
	if err != nil {
		return nil, nil, l.fault("get", err)
	}
	var spec coordination.LeaseSpec
	if err := json.Unmarshal(e.Value, &spec); err != nil {
		return nil, nil, l.fault("get", fmt.Errorf("malformed record in key %q: %w", l.key, err))
	}
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&spec)
	l.read(e, r.HolderIdentity)
	return r, e.Value, nil
}

// read takes note of the record as it is in the group. A write whose outcome was unknown is recognized by its
// value, which no other candidate writes.
func (l *Lock) read(e conclave.Entry, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.ModifyIndex != l.index && !(l.leads && bytes.Equal(e.Value, l.attempted)) {
		l.leads = false
	}
	l.index, l.holder = e.ModifyIndex, holder
}

// Create implements [resourcelock.Interface]. If there is a record already, the error is one
// that IsAlreadyExists of k8s.io/apimachinery/pkg/api/errors recognizes.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, "create", 0, meta.StatusReasonAlreadyExists, r)
}

// Update implements [resourcelock.Interface]. It replaces the record that this Lock has read or
// written last. If another candidate has replaced it, the error is one that IsConflict of
// k8s.io/apimachinery/pkg/api/errors recognizes. A record without a holder, which is a release,
// replaces only one of this candidate; otherwise the error wraps [conclave.ErrNotHeld].
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	index, holder := l.index, l.holder
	l.mu.Unlock()
	switch {
	case index == 0:
		return l.fault("update", errors.New("no record: call Get or Create first"))
	case r.HolderIdentity == "" && holder != l.config.Identity:
		// After a pause client-go reads the record before it releases, and does not look at the
		// holder. It would retry after a conflict.
		return l.fault("update", fmt.Errorf("release: %w: the holder is %q", conclave.ErrNotHeld, holder))
	}
	return l.write(ctx, "update", index, meta.StatusReasonConflict, r)
}

func (l *Lock) write(ctx context.Context, op string, index uint64, refusal meta.StatusReason, r resourcelock.LeaderElectionRecord) error {
	value, err := json.Marshal(resourcelock.LeaderElectionRecordToLeaseSpec(&r))
	if err != nil {
		return l.fault(op, err)
	}
	ctx, cancel, err := l.bound(ctx)
	if err != nil {
		return l.fault(op, err)
	}
	defer cancel()
	l.attempt(value, r.HolderIdentity)
	began := time.Now() // others count from when they see the record, which is later
	e, swapped, err := l.kv.CompareAndSwap(ctx, l.key, index, value)
	if err != nil {
		return l.fault(op, err)
	}
	if !swapped {
		return l.status(refusal, conclave.ErrCompareFailed)
	}
	l.written(e.ModifyIndex, r, began)
	return nil
}

// attempt precedes a write. One that releases leadership counts from here on, whatever its outcome.
func (l *Lock) attempt(value []byte, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempted = value
	l.leads = l.leads && holder == l.config.Identity
}

func (l *Lock) written(index uint64, r resourcelock.LeaderElectionRecord, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index, l.holder = index, r.HolderIdentity
	if r.HolderIdentity != l.config.Identity {
		return
	}
	if !l.leads {
		l.leads, l.fence = true, conclave.Fence(index)
	}
	l.lease = time.Duration(r.LeaseDurationSeconds) * time.Second
	l.deadline = began.Add(l.lease - l.lease/100) // clocks differ in speed
}

// bound bounds a leader's call by the end of the lease, and refuses one that comes later. With
// ReleaseOnCancel client-go attempts a release before it cancels the leader's context: without
// a quorum it would block there for another RenewDeadline, and the next leader would start meanwhile.
//
// The refusals end after another LeaseDuration, in which that release is over: the Lock may serve
// another Run.
func (l *Lock) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := time.Since(l.deadline)
	if late > l.lease {
		l.leads = false
	}
	switch {
	case !l.leads:
		return ctx, func() {}, nil
	case late > 0:
		return nil, nil, conclave.ErrLockOwnershipLost
	}
	ctx, cancel := context.WithDeadline(ctx, l.deadline)
	return ctx, cancel, nil
}

// Fence returns the fencing token of the leadership of this process: the index of the change that made
// it the leader. It is larger than that of each earlier leader of any election of the group that
// uses this package. It is no fence of a FencedLock or an Election: a resource compares tokens of
// one kind only.
//
// It does not block and needs no network. [conclave.ErrNotHeld]: another candidate leads, or none.
// [conclave.ErrLockOwnershipLost]: the lease has not been renewed for LeaseDuration, less 1 %, by
// this process's clock, so another candidate may lead. As in client-go, time during which the machine
// is suspended does not count: after that the fence may be stale, and the resource refuses it.
func (l *Lock) Fence() (conclave.Fence, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.leads:
		return 0, l.fault("fence", conclave.ErrNotHeld)
	case time.Now().After(l.deadline):
		return 0, l.fault("fence", conclave.ErrLockOwnershipLost)
	}
	return l.fence, nil
}

// RecordEvent implements [resourcelock.Interface]. It passes the event to the config's
// EventRecorder, if there is one, about a Lease of that name, which need not exist.
func (l *Lock) RecordEvent(message string) {
	if l.config.EventRecorder == nil {
		return
	}
	subject := &coordination.Lease{
		TypeMeta:   meta.TypeMeta{Kind: "Lease", APIVersion: coordination.SchemeGroupVersion.String()},
		ObjectMeta: meta.ObjectMeta{Name: l.name},
	}
	l.config.EventRecorder.Eventf(subject, core.EventTypeNormal, "LeaderElection", "%s %s", l.config.Identity, message)
}

// Identity implements [resourcelock.Interface].
func (l *Lock) Identity() string { return l.config.Identity }

// Describe implements [resourcelock.Interface]. It returns the key.
func (l *Lock) Describe() string { return "conclave:" + l.key }
