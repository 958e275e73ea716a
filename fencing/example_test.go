package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// A holder that was paused writes to a file late, after a restart of the process that guards it.
func ExampleFile() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "fences")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	guard := fencing.File{Dir: dir}
	write := func(fence conclave.Fence) error { // fence: of FencedLock.Do, or of a request
		return guard.Do(conclave.ContextWithFence(ctx, fence), "report", func() error {
			return os.WriteFile(filepath.Join(dir, "report.txt"), []byte("..."), 0o600)
		})
	}
	fmt.Println(write(8))
	fmt.Println(errors.Is(write(7), conclave.ErrStaleFence))
	// Output:
	// <nil>
	// true
}

// A holder writes to a server under the lock "invoices". The request of an earlier holder is refused.
func Example() {
	ctx := context.Background()
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /invoices/{id}", func(_ http.ResponseWriter, r *http.Request) {
		fence, _ := conclave.FenceFromContext(r.Context())
		fmt.Println("stored", r.PathValue("id"), "with fence", fence)
	})
	server := httptest.NewServer(fencing.Middleware{
		Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true},
		Locks:  func(*http.Request) []string { return []string{"invoices"} },
	}.Handler(mux))
	defer server.Close()

	client := &http.Client{Transport: &fencing.Transport{Lock: "invoices"}}
	put := func(ctx context.Context, id string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/invoices/"+id, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return fencing.ErrorOf(resp)
	}

	node, err := conclave.Open(ctx, nil) // a group of one
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)
	lock := node.FencedLock("invoices")
	var late context.Context
	for _, id := range []string{"4711", "4712"} {
		err := lock.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
			if late == nil {
				late = context.WithoutCancel(ctx) // as if the holder were paused here, with its fence
			}
			return put(ctx, id)
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	err = put(late, "4711")
	fmt.Println(errors.Is(err, conclave.ErrStaleFence), err)
	// Output:
	// stored 4711 with fence 1
	// stored 4712 with fence 2
	// true conclave: check "invoices": stale fence: 1 came after 2
}

func ExampleContextWithLock() {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get(fencing.Header))
	}))
	defer server.Close()
	client := &http.Client{Transport: new(fencing.Transport)}

	node, err := conclave.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(context.Background())

	invoices, ledger := node.FencedLock("invoices"), node.FencedLock("ledger, 2026")
	err = invoices.Do(context.Background(), func(ctx context.Context, _ conclave.Fence) error {
		ctx = fencing.ContextWithLock(ctx, "invoices")
		return ledger.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
			ctx = fencing.ContextWithLock(ctx, "ledger, 2026")
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				return err
			}
			resp, err := client.Do(r)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: invoices=1, ledger%2C%202026=2
}

var guard = fencing.SQL{Dialect: fencing.PostgreSQL}

// book is called by the holder of the lock "invoices".
func book(ctx context.Context, db *sql.DB, account string, amount int) error {
	return guard.Tx(ctx, db, "invoices", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE accounts SET amount = amount + $1 WHERE name = $2", amount, account)
		return err
	}) // ErrStaleFence: a later holder has written; nothing was
}

func ExampleSQL_Tx() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)
	db, err := sql.Open("pgx", "host=/run/postgresql") // with import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, fencing.Schema(fencing.PostgreSQL)); err != nil {
		log.Fatal(err)
	}
	err = node.FencedLock("invoices").Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
		return book(ctx, db, "rent", 100)
	})
	if errors.Is(err, conclave.ErrStaleFence) {
		fmt.Println("the lock was lost, and a later holder has written")
	}
}

// A guard in memory forgets with its process. One in a database does not.
func ExampleSQL_Guard() {
	db, err := sql.Open("pgx", "host=/run/postgresql")
	if err != nil {
		log.Fatal(err)
	}
	middleware := fencing.Middleware{Policy: fencing.Policy{Guard: guard.Guard(db), Required: true}}
	http.Handle("PUT /invoices/", middleware.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = book(r.Context(), db, r.URL.Path, len(body)) // compares again, in the transaction that writes
		}
		if err != nil {
			fencing.ProblemOf(err).ServeHTTP(w, r)
		}
	})))
}
