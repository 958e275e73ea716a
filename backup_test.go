package conclave_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func openAt(t *testing.T, dir string) *conclave.Node {
	t.Helper()
	n, err := conclave.Open(grouptest.Bounded(t), &conclave.Config{
		Dir: dir, HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { grouptest.Kill(n) })
	return n
}

func backupOf(t *testing.T, n *conclave.Node) []byte {
	t.Helper()
	var b bytes.Buffer
	grouptest.Must(t, n.Backup(grouptest.Bounded(t), &b))
	return b.Bytes()
}

func restored(t *testing.T, backup []byte) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "restored")
	grouptest.Must(t, conclave.Restore(t.Context(), dir, bytes.NewReader(backup)))
	return dir
}

// populate makes something of every kind, and returns the session that has it all.
func populate(t *testing.T, n *conclave.Node) (s *conclave.Session, last conclave.Fence) {
	t.Helper()
	ctx := grouptest.Bounded(t)
	k := n.KV()
	s = grouptest.MustSession(t, n, grouptest.Lasting())
	deleting := grouptest.MustSession(t, n, &conclave.SessionConfig{TTL: conclave.NoTTL, NoChecks: true, Behavior: conclave.DeleteKeys})
	grouptest.MustLock(t, s.FencedLock("held"))
	grouptest.MustCampaign(t, s.Election("leader"), "candidate")
	grouptest.MustAcquire(t, s.Semaphore("pool", 3), 2)
	grouptest.Must(t, s.Semaphore("resized", 4).Resize(ctx, 7))
	grouptest.MustCheck(t, n, "ready", time.Minute)
	grouptest.MustPut(t, k, "plain", "v", conclave.WithFlags(3))
	grouptest.MustAcquireKey(t, k, "released", "mine", s)
	grouptest.MustAcquireKey(t, k, "deleted", "mine", deleting)
	last = grouptest.MustLock(t, s.FencedLock("another"))
	_, err := k.PutFenced(ctx, "guarded", []byte("by the holder"), last)
	grouptest.Must(t, err)
	return s, last
}

// wantReborn checks that a new group has the keys and nothing else of the old one.
func wantReborn(t *testing.T, n *conclave.Node, old *conclave.Session, largest conclave.Fence) {
	t.Helper()
	ctx := grouptest.Bounded(t)
	k := n.KV()
	if e := grouptest.MustGet(t, k, "plain"); string(e.Value) != "v" || e.Flags != 3 {
		t.Errorf("%+v", e)
	}
	if e := grouptest.MustGet(t, k, "released"); string(e.Value) != "mine" || e.Session != (conclave.SessionID{}) {
		t.Errorf("%+v", e)
	}
	_, err := k.Get(ctx, "deleted")
	grouptest.WantError(t, err, conclave.ErrKeyNotFound)
	if list := grouptest.Sessions(t, n); len(list) != 0 {
		t.Errorf("sessions %+v", list)
	}
	if list := grouptest.Locks(t, n, ""); len(list) != 0 {
		t.Errorf("locks %+v", list)
	}
	if list, err := grouptest.Collect(n.Elections(ctx, "")); len(list) != 0 || err != nil {
		t.Errorf("elections %+v, %v", list, err)
	}
	list, err := grouptest.Collect(n.Semaphores(ctx, ""))
	if err != nil || len(list) != 1 || list[0].Name != "resized" || list[0].Limit != 7 {
		t.Errorf("semaphores %+v, %v", list, err)
	}
	checks, err := grouptest.Collect(n.Checks(ctx))
	if err != nil || len(checks) != 2 { // the built-in ones of the new member
		t.Errorf("checks %+v, %v", checks, err)
	}
	_, err = n.AttachSession(ctx, old.ID())
	grouptest.WantError(t, err, conclave.ErrSessionNotFound)
	if members := n.Status().Members; len(members) != 1 || members[0].ID != n.Status().ID {
		t.Errorf("members %+v", members)
	}
	f := grouptest.MustLock(t, n.FencedLock("held"))
	if f <= largest {
		t.Errorf("fence %v after %v", f, largest)
	}
	_, err = k.PutFenced(ctx, "guarded", []byte("late"), largest-1)
	grouptest.WantError(t, err, conclave.ErrStaleFence)
	if _, err = k.PutFenced(ctx, "guarded", []byte("new"), f); err != nil {
		t.Error(err)
	}
}

func TestRestore_KeysAndLimitsOnly(t *testing.T) {
	n := openAt(t, filepath.Join(t.TempDir(), "old"))
	s, largest := populate(t, n)
	dir := restored(t, backupOf(t, n))
	grouptest.Kill(n)

	info, err := conclave.Verify(dir)
	if err != nil || !info.Seed || info.Boots != 0 || info.Epoch() != 1 || info.Keys != 3 || info.Sessions != 0 || len(info.Voters) != 1 || info.Uncertain() != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	reborn := openAt(t, dir)
	if reborn.Status().ID != info.Member || reborn.Status().ID == n.Status().ID {
		t.Errorf("member %v, the seed is of %v, the old one was %v", reborn.Status().ID, info.Member, n.Status().ID)
	}
	wantReborn(t, reborn, s, largest)
	again := restored(t, backupOf(t, reborn)) // a restored group restored again
	grouptest.Kill(reborn)
	if info, err := conclave.Verify(again); err != nil || info.Epoch() != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	reopened := openAt(t, dir)
	if e := grouptest.MustGet(t, reopened.KV(), "guarded"); string(e.Value) != "new" {
		t.Errorf("%+v", e)
	}
}

// However much the old group grants after the backup, and however often the backup is
// restored, no fence and no index comes twice.
func TestRestore_RepeatsNothing(t *testing.T) {
	old := openAt(t, filepath.Join(t.TempDir(), "old"))
	grouptest.MustPut(t, old.KV(), "k", "before")
	backup := backupOf(t, old)
	largest := grouptest.MustLock(t, old.FencedLock("x"))
	grouptest.Busy(t, old, 200)
	var lost conclave.Entry
	for _, value := range []string{"a", "b", "c"} {
		lost = grouptest.MustPut(t, old.KV(), "k", value)
	}
	largest = max(largest, grouptest.MustLock(t, old.FencedLock("y")))
	seen := make(map[conclave.Fence]bool)
	indexes := map[uint64]bool{lost.ModifyIndex: true}
	for range 4 {
		n := openAt(t, restored(t, backup))
		l := n.FencedLock("x")
		for range 50 {
			f := grouptest.MustLock(t, l)
			if f <= largest || seen[f] {
				t.Fatalf("fence %v, after %v in the old group; %d seen", f, largest, len(seen))
			}
			seen[f] = true
			grouptest.MustUnlock(t, l)
		}
		ctx := grouptest.Bounded(t)
		if _, swapped, err := n.KV().CompareAndSwap(ctx, "k", lost.ModifyIndex, []byte("wrong")); swapped || err != nil {
			t.Fatalf("swapped with an index of the lost time: %v, %v", swapped, err)
		}
		e := grouptest.MustPut(t, n.KV(), "k", "after")
		if e.ModifyIndex <= lost.ModifyIndex || indexes[e.ModifyIndex] {
			t.Fatalf("index %d after %d", e.ModifyIndex, lost.ModifyIndex)
		}
		if _, swapped, err := n.KV().CompareAndSwap(ctx, "k", e.ModifyIndex-1, []byte("wrong")); swapped || err != nil {
			t.Fatal(swapped, err)
		}
		indexes[e.ModifyIndex] = true
		grouptest.WantWatchEnd(t, ctx, n.KV(), lost.ModifyIndex, conclave.ErrCompacted)
		grouptest.Kill(n)
	}
}

func TestRestore_Refuses(t *testing.T) {
	n := openAt(t, filepath.Join(t.TempDir(), "old"))
	populate(t, n)
	backup := backupOf(t, n)
	restore := func(dir string, backup []byte) error {
		return conclave.Restore(t.Context(), dir, bytes.NewReader(backup))
	}
	missing := filepath.Join(t.TempDir(), "a", "b")
	newer := bytes.Clone(backup)
	copy(newer, newerBackup)
	for name, bad := range map[string][]byte{
		"nothing": nil, "foreign": []byte("#!/bin/sh\necho no backup\n"), "truncated": backup[:len(backup)-1],
		"no end": backup[:len(backup)/2], "trailing": append(bytes.Clone(backup), 0), "twice": append(bytes.Clone(backup), backup...),
	} {
		grouptest.WantError(t, restore(missing, bad), conclave.ErrCorrupt)
		if t.Failed() {
			t.Log(name)
		}
	}
	grouptest.WantError(t, restore(missing, newer), conclave.ErrUpgradeRequired)
	grouptest.WantError(t, restore("", backup), conclave.ErrInvalid)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	grouptest.WantError(t, conclave.Restore(cancelled, missing, bytes.NewReader(backup)), context.Canceled)
	grouptest.WantError(t, conclave.Restore(t.Context(), missing, failing{}), errFailing)
	if _, err := os.Stat(filepath.Dir(missing)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused backup has created the directory: %v", err)
	}

	full := t.TempDir()
	grouptest.Must(t, os.WriteFile(filepath.Join(full, "holiday.jpg"), []byte("a beach"), 0o600))
	for _, dir := range []string{full, filepath.Join(full, "holiday.jpg"), restored(t, backup)} {
		before, _ := os.ReadDir(dir)
		grouptest.WantError(t, restore(dir, backup), conclave.ErrInvalid)
		if after, _ := os.ReadDir(dir); len(after) != len(before) {
			t.Errorf("%s has changed: %v, then %v", dir, before, after)
		}
	}
	grouptest.Must(t, restore(t.TempDir(), backup)) // an empty one
}

// newerBackup is the prelude of a backup of version 9.
const newerBackup = "conclave backup\n\x00\x00\x00\x09\xf9\x9f\xea\x78"

var errFailing = errors.New("failing")

// failing is a reader and a writer that fails.
type failing struct{}

func (failing) Read([]byte) (int, error)  { return 0, errFailing }
func (failing) Write([]byte) (int, error) { return 0, errFailing }
