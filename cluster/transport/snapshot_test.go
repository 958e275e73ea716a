package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// pairs makes n pairs whose values differ in length.
func pairs(n int) []*wire.Pair {
	out := make([]*wire.Pair, n)
	for i := range out {
		out[i] = &wire.Pair{Key: fmt.Appendf(nil, "key %d", i), Value: bytes.Repeat([]byte{byte(i)}, i*7%3000)}
	}
	return out
}

// collect reads a snapshot to its end.
func collect(into *[]*wire.Pair) func(uint64, *SnapshotReader) error {
	return func(_ uint64, r *SnapshotReader) error {
		for {
			p, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			*into = append(*into, p...)
		}
	}
}

func snapshotPair(t *testing.T) (a, b *node) {
	t.Helper()
	small := func(c *Config) { c.Limits.Chunk = 16 << 10 }
	a, b = start(t, identity(1), listenTCP(t), small), start(t, identity(2), listenTCP(t), small)
	introduceAll(t, a, b)
	return a, b
}

var testHeader = &wire.SnapshotHeader{Version: wire.SnapshotVersion, Digest: 42}

func TestSnapshot(t *testing.T) {
	for _, n := range []int{0, 1, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b := snapshotPair(t)
			var got []*wire.Pair
			b.events.snapshot = func(from uint64, r *SnapshotReader) error {
				if from != 1 || r.Header().GetDigest() != 42 {
					t.Errorf("from %d, header %v", from, r.Header())
				}
				return collect(&got)(from, r)
			}
			w, err := a.OpenSnapshot(context.Background(), 2, testHeader)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			want := pairs(n)
			key := make([]byte, 0, 100)
			for _, p := range want {
				key = append(key[:0], p.GetKey()...) // Add keeps a copy
				if err := w.Add(key, p.GetValue()); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Commit(); err != nil {
				t.Fatal(err)
			}
			if len(got) != n {
				t.Fatalf("%d pairs arrived, want %d", len(got), n)
			}
			for i, p := range want {
				if !bytes.Equal(got[i].GetKey(), p.GetKey()) || !bytes.Equal(got[i].GetValue(), p.GetValue()) {
					t.Fatalf("pair %d differs", i)
				}
			}
		})
	}
}

// The sender learns why a snapshot was not installed, be it at the start, half
// way or at the end.
func TestSnapshotRefused(t *testing.T) {
	a, b := snapshotPair(t)
	send := func(header *wire.SnapshotHeader, n int) error {
		w, err := a.OpenSnapshot(context.Background(), 2, header)
		if err != nil {
			return err
		}
		defer w.Close()
		for _, p := range pairs(n) {
			if err := w.Add(p.GetKey(), p.GetValue()); err != nil {
				return err
			}
		}
		return w.Commit()
	}
	var all []*wire.Pair
	for _, c := range []struct {
		name   string
		header *wire.SnapshotHeader
		handle func(uint64, *SnapshotReader) error
		says   string
	}{
		{"newer version", &wire.SnapshotHeader{Version: 99}, nil, "upgrade"},
		{"at once", testHeader, func(uint64, *SnapshotReader) error { return errors.New("no room") }, "no room"},
		{"at the end", testHeader, func(f uint64, r *SnapshotReader) error {
			return errors.Join(collect(&all)(f, r), errors.New("disk on fire"))
		}, "disk on fire"},
		{"not read", testHeader, func(uint64, *SnapshotReader) error { return nil }, "not read to its end"},
		{"a long story", testHeader, func(uint64, *SnapshotReader) error { return errors.New(strings.Repeat("no ", 10_000)) }, "no no"},
	} {
		for _, n := range []int{1, 5000} {
			t.Run(fmt.Sprintf("%s, %d pairs", c.name, n), func(t *testing.T) {
				b.events.snapshot = c.handle
				err := send(c.header, n)
				await(t, func() error { return slotsFree(b) })
				if !errors.Is(err, ErrSnapshotRefused) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %.200v, want %q in it", err, c.says)
				}
			})
		}
	}
}

func slotsFree(n *node) error {
	n.slots.mu.Lock()
	defer n.slots.mu.Unlock()
	if n.slots.taken[slot{1, wire.Kind_SNAPSHOT}] > 0 {
		return errors.New("the snapshot connection is still open")
	}
	return nil
}

// A snapshot that breaks off is never taken for a whole one.
func TestSnapshotBreaksOff(t *testing.T) {
	a, b := snapshotPair(t)
	result := make(chan error, 1)
	b.events.snapshot = func(f uint64, r *SnapshotReader) error {
		var all []*wire.Pair
		err := collect(&all)(f, r)
		result <- err
		return err
	}
	for name, stop := range map[string]func(*SnapshotWriter, context.CancelFunc){
		"closed":    func(w *SnapshotWriter, _ context.CancelFunc) { w.Close() },
		"cancelled": func(_ *SnapshotWriter, cancel context.CancelFunc) { cancel() },
		"miscounted": func(w *SnapshotWriter, _ context.CancelFunc) {
			w.total++
			if err := w.Commit(); !errors.Is(err, ErrSnapshotRefused) || !strings.Contains(err.Error(), "should have") {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			await(t, func() error { return slotsFree(b) })
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w, err := a.OpenSnapshot(ctx, 2, testHeader)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for _, p := range pairs(500) {
				if err := w.Add(p.GetKey(), p.GetValue()); err != nil {
					t.Fatal(err)
				}
			}
			stop(w, cancel)
			if err := <-result; err == nil {
				t.Error("the receiver took it for whole")
			}
		})
	}
}

func TestOneSnapshotAtATime(t *testing.T) {
	a, b := snapshotPair(t)
	var all []*wire.Pair
	b.events.snapshot = collect(&all)
	first, err := a.OpenSnapshot(context.Background(), 2, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = a.OpenSnapshot(context.Background(), 2, testHeader)
	checkRefusal(t, err, ReasonBusy, "SNAPSHOT")
	if _, err = a.OpenSnapshot(context.Background(), 9, testHeader); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	if err := first.Add(nil, make([]byte, 17<<10)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a pair over the limit: %v", err)
	}
	if err := first.Commit(); err != nil {
		t.Error(err)
	}
}
