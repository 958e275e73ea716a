//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// director runs the story.
type director struct {
	unfenced bool
	logf     logFunc
}

// direct returns an error if anything differs from the story.
func (d director) direct(ctx context.Context, w io.Writer) (err error) {
	d.logf = newLog(w)
	dir, err := os.MkdirTemp("", "conclave-postgres-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d.logf("", "A PostgreSQL server of its own, with a table for invoices and one for fences.")
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	db, err := createTables(ctx, s.source)
	if err != nil {
		return err
	}
	defer db.Close()
	var version string
	if err := db.QueryRowContext(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	d.logf("database", "is PostgreSQL %s, in %s", version, s.dir)

	d.logf("", "Three processes form a group.")
	cast, err := d.startWorkers(ctx, dir, s.source)
	defer func() { err = errors.Join(err, cast.end(err == nil)) }()
	if err != nil {
		return err
	}
	if err := d.play(ctx, cast[0], cast[1]); err != nil {
		return err
	}
	return d.conclude(ctx, db)
}

func createTables(ctx context.Context, source string) (*sql.DB, error) {
	db, err := sql.Open("pgx", source)
	if err != nil {
		return nil, err
	}
	schema, err := guard.Schema()
	if err == nil {
		_, err = db.ExecContext(ctx, schema)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE invoices (number SERIAL PRIMARY KEY, written_by TEXT NOT NULL, fence TEXT NOT NULL)")
	}
	if err != nil {
		_ = db.Close() // the first error is the cause
		return nil, err
	}
	return db, nil
}

// startWorkers starts the workers; the later ones join the first.
func (d director) startWorkers(ctx context.Context, dir, source string) (cast, error) {
	var all cast
	first := ""
	for _, name := range []string{"anna", "ben", "clara"} {
		a, err := newActor(d.logf, name, "-dir", filepath.Join(dir, name), "-join", first, "-database", source, fmt.Sprintf("-unfenced=%t", d.unfenced))
		if err != nil {
			return all, err
		}
		all = append(all, a)
		addr, err := a.read(ctx, "listens on ")
		if err != nil {
			return all, err
		}
		if first == "" {
			first = addr
		}
	}
	for _, a := range all {
		if _, err := a.read(ctx, "is in the group"); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (d director) play(ctx context.Context, anna, ben *actor) error {
	d.logf("", "anna acquires the lock, and is paused before it writes.")
	if err := anna.order(ctx, "lock", "holds the lock"); err != nil {
		return err
	}
	if err := anna.pause(); err != nil {
		return err
	}
	d.logf("", "ben requests the lock. The paused holder does not renew its session, which expires after %v.", sessionTTL)
	if err := ben.order(ctx, "lock", "holds the lock"); err != nil {
		return err
	}
	for range 2 {
		if err := ben.order(ctx, "write", "writes an invoice"); err != nil {
			return err
		}
	}
	d.logf("", "anna is resumed, and writes as if no time had passed. ben still holds the lock.")
	if err := anna.resume(); err != nil {
		return err
	}
	outcome := "gives up the lost hold"
	if d.unfenced {
		outcome = "writes an invoice"
	}
	if err := anna.order(ctx, "write", outcome); err != nil {
		return err
	}
	return ben.order(ctx, "unlock", "releases the lock")
}

// conclude shows the table, and compares it with what the story promises.
func (d director) conclude(ctx context.Context, db *sql.DB) error {
	d.logf("", "The table invoices:")
	writers, err := d.show(ctx, db)
	if err != nil {
		return err
	}
	want, moral := []string{"ben", "ben"}, "It has the invoices of ben and no other. Without the fence it would have that of anna too: see -unfenced."
	if d.unfenced {
		want, moral = []string{"ben", "ben", "anna"}, "anna wrote while ben held the lock, as nothing compared the fences."
	}
	if !slices.Equal(writers, want) {
		return fmt.Errorf("the table has invoices of %v, want %v", writers, want)
	}
	d.logf("", "%s", moral)
	return nil
}

func (d director) show(ctx context.Context, db *sql.DB) (writers []string, err error) {
	rows, err := db.QueryContext(ctx, "SELECT number, written_by, fence FROM invoices ORDER BY number")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	d.logf("database", "number   written by   fence")
	for rows.Next() {
		var number int
		var writer, fence string
		if err := rows.Scan(&number, &writer, &fence); err != nil {
			return nil, err
		}
		d.logf("database", "%-8d %-12s %s", number, strings.TrimSpace(writer), fence)
		writers = append(writers, writer)
	}
	return writers, rows.Err()
}
