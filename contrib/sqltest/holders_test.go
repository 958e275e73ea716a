//go:build unix

package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/fencing"
)

// set writes a value of the resource, as the holder with the fence of ctx.
func (b *database) set(ctx context.Context, lock, value string) error {
	return b.Tx(ctx, b.db, lock, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, b.query("UPDATE resource SET value = ?"), value)
		return err
	})
}

func (b *database) resource(t *testing.T) (value string) {
	t.Helper()
	if err := b.db.QueryRowContext(t.Context(), "SELECT value FROM resource").Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// A holder loses its session without noticing, as if paused; the next holder writes; the first one
// continues where it was.
func (b *database) pausedHolder(t *testing.T) {
	b.exec(t, "CREATE TABLE resource (value VARCHAR(20))")
	b.exec(t, "INSERT INTO resource VALUES ('nothing')")
	group := conclavetest.Start(t, 3)

	first := group.Node(0).FencedLock("invoices")
	old, err := first.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paused := conclave.ContextWithFence(t.Context(), old) // no Do, which would cancel it
	if err := b.set(paused, "invoices", "first"); err != nil {
		t.Fatal(err)
	}

	group.Partition([]int{0}) // its session expires in the group
	second := group.Node(1).FencedLock("invoices")
	if err := second.Do(t.Context(), func(ctx context.Context, _ conclave.Fence) error { return b.set(ctx, "invoices", "second") }); err != nil {
		t.Fatal(err)
	}
	largest, err := b.Largest(t.Context(), b.db, "invoices")
	if err != nil || largest <= old {
		t.Fatalf("the second holder's fence is %v, %v, after %v", largest, err, old)
	}
	refused(t, b.set(paused, "invoices", "first, late"), old, largest)
	if value := b.resource(t); value != "second" {
		t.Errorf("the resource has %q", value)
	}
	b.exec(t, "DROP TABLE resource")
}

// A check that runs in its own process, or request, before the handler's.
func (b *database) guard(t *testing.T) {
	g := b.Guard(b.db)
	for _, f := range []conclave.Fence{1 << 50, 1 << 50, 1 << 63} {
		if err := g.Check("guard", f); err != nil {
			t.Fatal(err)
		}
	}
	again := b.Guard(b.open(t, "")) // another process
	refused(t, again.Check("guard", 1<<50), 1<<50, 1<<63)
	if err := again.Check("guard", 0); !errors.Is(err, fencing.ErrMissing) {
		t.Errorf("fence 0: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := again.CheckContext(cancelled, "guard", 1<<63); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// From the client's context through the header into the transaction.
func (b *database) middleware(t *testing.T) {
	b.exec(t, "CREATE TABLE resource (value VARCHAR(20))")
	b.exec(t, "INSERT INTO resource VALUES ('nothing')")
	middleware := fencing.Middleware{Policy: fencing.Policy{Guard: b.Guard(b.db), Required: true}}
	server := httptest.NewServer(middleware.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.set(r.Context(), "payroll", strings.TrimPrefix(r.URL.Path, "/")); err != nil {
			fencing.ProblemOf(err).ServeHTTP(w, r)
		}
	})))
	defer server.Close()
	client := &http.Client{Transport: &fencing.Transport{Lock: "payroll"}}

	put := func(f conclave.Fence) error {
		ctx := conclave.ContextWithFence(t.Context(), f)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/by-%d", server.URL, f), nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if err := fencing.ErrorOf(resp); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	}
	for _, f := range []conclave.Fence{10, 10, 11} {
		if err := put(f); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, put(10), 10, 11)
	if value := b.resource(t); value != "by-11" {
		t.Errorf("the resource has %q", value)
	}
	b.exec(t, "DROP TABLE resource")
}
