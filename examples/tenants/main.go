// Tenants gives two users of one cluster a group each, so that neither waits for the other, in three members:
//
//	go run ./examples/tenants
//
// Both tenants have a lock of the name invoices, and hold it at the same time: a name in two groups is two locks. Then the tenant
// loud writes large values as fast as it can, and the program measures how long quiet takes for a lock and its unlock: first
// when both use one group, where the values are before it in the log, then when each has its own. The disk and the
// processors are the same, so the second is shorter, but not what it is alone.
//
// At the end loud is deleted with all that it holds. Its holder learns of that, and a group of the same name that is created
// later grants larger fences.
//
// load.go has the writers and the measurement.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/examples/oneprocess"
)

func main() {
	oneprocess.Main("tenants", `Tenants gives two users of one cluster a group each, and measures how long one waits beside the other.`,
		func(ctx context.Context) error { return run(ctx, os.Stdout) })
}

func run(ctx context.Context, w io.Writer) error {
	members := oneprocess.Group("anna", "ben", "clara")
	defer oneprocess.Close(members)
	if err := oneprocess.Start(ctx, members, members...); err != nil {
		return err
	}
	anna := members[0].Node
	loud, err := anna.CreateGroup(ctx, "loud", conclave.GroupConfig{})
	if err != nil {
		return err
	}
	quiet, err := anna.CreateGroup(ctx, "quiet", conclave.GroupConfig{})
	if err != nil {
		return err
	}
	for g, err := range anna.Groups(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "group %d: %s, %d voters\n", g.Number, g.Name, len(g.Voters))
	}
	held := loud.FencedLock("invoices")
	if err := holdBoth(ctx, w, held, quiet.FencedLock("invoices")); err != nil {
		return err
	}
	if err := compare(ctx, w, loud, quiet); err != nil {
		return err
	}
	return replace(ctx, w, members[1].Node, held)
}

// holdBoth has each tenant hold its lock. That of quiet is released.
func holdBoth(ctx context.Context, w io.Writer, loud, quiet *conclave.FencedLock) error {
	if _, err := loud.Lock(ctx); err != nil {
		return err
	}
	if _, err := quiet.Lock(ctx); err != nil {
		return err
	}
	fmt.Fprintln(w, "both tenants hold their lock invoices")
	return quiet.Unlock(ctx)
}

// compare measures quiet beside loud.
func compare(ctx context.Context, w io.Writer, loud, quiet *conclave.Group) error {
	for _, m := range []struct {
		what  string
		write *conclave.Group // nil: none
	}{
		{"alone", nil}, {"with loud in its group", quiet}, {"with loud in a group of its own", loud},
	} {
		slowest, err := measure(ctx, quiet, m.write)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "quiet %s: 19 of 20 locks take at most %v\n", m.what, slowest.Round(10*time.Microsecond))
	}
	return nil
}

// replace deletes loud by way of another member, and creates it again.
func replace(ctx context.Context, w io.Writer, n *conclave.Node, held *conclave.FencedLock) error {
	last, err := held.Fence()
	if err != nil {
		return err
	}
	lost := held.Lost()
	if err := n.DeleteGroup(ctx, "loud"); !errors.Is(err, conclave.ErrLocked) {
		return fmt.Errorf("a group with a held lock: %w", err)
	}
	fmt.Fprintln(w, "loud is not deleted while it holds a lock")
	if err := n.DeleteGroup(ctx, "loud", conclave.Force()); err != nil {
		return err
	}
	<-lost
	fmt.Fprintln(w, "loud is deleted by force, and its holder knows")
	again, err := n.CreateGroup(ctx, "loud", conclave.GroupConfig{})
	if err != nil {
		return err
	}
	f, err := again.FencedLock("invoices").Lock(ctx)
	if err != nil {
		return err
	}
	if f <= last {
		return fmt.Errorf("fence %v after %v", f, last)
	}
	fmt.Fprintln(w, "another group of that name grants a larger fence")
	return nil
}
