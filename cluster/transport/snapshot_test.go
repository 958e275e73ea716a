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

// pairs returns n pairs with values of different lengths.
func pairs(n int) []*wire.Pair {
	out := make([]*wire.Pair, n)
	for i := range out {
		out[i] = &wire.Pair{Key: fmt.Appendf(nil, "key %d", i), Value: bytes.Repeat([]byte{byte(i)}, i*7%3000)}
	}
	return out
}

// collect returns a handler that reads a whole snapshot.
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
			for key, value := range p.All() {
				*into = append(*into, &wire.Pair{Key: key, Value: value})
			}
		}
	}
}

func snapshotPair(t *testing.T) (a, b *node) {
	t.Helper()
	small := func(c *Config) { c.Limits.Chunk = 16 << 10 }
	a, b = start(t, identity(1), listenTCP(t), small), start(t, identity(2), listenTCP(t), small)
	connectAll(t, a, b)
	return a, b
}

var testHeader = &wire.SnapshotHeader{Version: wire.SnapshotVersion, Digest: 42}

func TestSnapshot_Transfer(t *testing.T) {
	for _, n := range []int{0, 1, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			a, b := snapshotPair(t)
			var got []*wire.Pair
			b.events.snapshot = func(from uint64, r *SnapshotReader) error {
				if from != m(1) || r.Header().GetDigest() != 42 {
					t.Errorf("from %d, header %v", from, r.Header())
				}
				return collect(&got)(from, r)
			}
			w, err := a.OpenSnapshot(context.Background(), m(2), testHeader)
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

// The sender gets the receiver's error, at whichever point it occurs.
func TestSnapshot_Refused(t *testing.T) {
	a, b := snapshotPair(t)
	send := func(header *wire.SnapshotHeader, n int) error {
		w, err := a.OpenSnapshot(context.Background(), m(2), header)
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
		want   string
	}{
		{"newer version", &wire.SnapshotHeader{Version: 99}, nil, "upgrade"},
		{"at once", testHeader, func(uint64, *SnapshotReader) error { return errors.New("disk full") }, "disk full"},
		{"at the end", testHeader, func(f uint64, r *SnapshotReader) error {
			return errors.Join(collect(&all)(f, r), errors.New("disk failed"))
		}, "disk failed"},
		{"not read by the handler", testHeader, func(uint64, *SnapshotReader) error { return nil }, "did not read the whole snapshot"},
		{"long error", testHeader, func(uint64, *SnapshotReader) error { return errors.New(strings.Repeat("no ", 10_000)) }, "no no"},
	} {
		for _, n := range []int{1, 5000} {
			t.Run(fmt.Sprintf("%s, %d pairs", c.name, n), func(t *testing.T) {
				b.events.snapshot = c.handle
				err := send(c.header, n)
				await(t, func() error { return snapshotClosed(b) })
				if !errors.Is(err, ErrSnapshotRefused) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %.200v, want it to contain %q", err, c.want)
				}
			})
		}
	}
}

func snapshotClosed(n *node) error {
	if n.limits.Reserved(m(1), wire.Kind_SNAPSHOT) > 0 {
		return errors.New("the snapshot connection is still open")
	}
	return nil
}

// An incomplete snapshot is never mistaken for a complete one.
func TestSnapshot_Incomplete(t *testing.T) {
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
			if err := w.Commit(); !errors.Is(err, ErrSnapshotRefused) || !strings.Contains(err.Error(), "incomplete snapshot") {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			await(t, func() error { return snapshotClosed(b) })
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w, err := a.OpenSnapshot(ctx, m(2), testHeader)
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
				t.Error("the receiver read it without an error")
			}
		})
	}
}

func TestSnapshot_ConcurrentRefused(t *testing.T) {
	a, b := snapshotPair(t)
	var all []*wire.Pair
	b.events.snapshot = collect(&all)
	first, err := a.OpenSnapshot(context.Background(), m(2), testHeader)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = a.OpenSnapshot(context.Background(), m(2), testHeader)
	checkRefusal(t, err, ReasonBusy, "SNAPSHOT")
	if _, err = a.OpenSnapshot(context.Background(), m(9), testHeader); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	if err := first.Add(nil, make([]byte, 17<<10)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an oversized pair: %v", err)
	}
	if err := first.Commit(); err != nil {
		t.Error(err)
	}
}
