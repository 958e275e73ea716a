// Transfer moves money between accounts from six workers at the same time, in three members:
//
//	go run ./examples/transfer
//
// Each transfer locks both accounts at once, by a LockSet, in whatever order they are: no worker holds one account while it waits
// for the other, so transfers in opposite directions cannot deadlock. An auditor shares the locks of all accounts, and finds the
// same sum each time. Each holder of a set leaves its fence in the accounts in the step that reads them. From then on the group
// refuses what a worker writes late, after it has lost its set; a late write before that step is among what is read.
//
// The program exits with status 1 if the sum changes. bank.go moves and counts the money.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/conclave-go/conclave/examples/oneprocess"
)

const (
	accounts  = 8
	deposit   = 100 // in each account
	workers   = 2   // of each member
	transfers = 40  // of each worker
	audits    = 3   // while they work
)

func main() {
	oneprocess.Main("transfer", `Transfer moves money between accounts from six workers at the same time, each time under a set of
two locks, and checks the sum.`, func(ctx context.Context) error { return run(ctx, os.Stdout) })
}

func run(ctx context.Context, w io.Writer) error {
	group := oneprocess.Group("anna", "ben", "clara")
	defer oneprocess.Close(group)
	if err := oneprocess.Start(ctx, group, group...); err != nil {
		return err
	}
	bank := &bank{group[0].Node}
	if err := bank.open(ctx); err != nil {
		return err
	}
	fmt.Fprintf(w, "anna, ben and clara have formed a group; %d accounts have %d together\n", accounts, accounts*deposit)

	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for i := range len(group) * workers {
		m := group[i%len(group)]
		all.Go(func() {
			if err := work(working, m); err != nil {
				stop(fmt.Errorf("a worker of %s: %w", m.Name(), err))
			}
		})
	}
	all.Go(func() {
		if err := audit(working, bank, w); err != nil {
			stop(err)
		}
	})
	all.Wait()
	if err := context.Cause(working); err != nil {
		return err
	}
	sum, err := bank.sum(ctx)
	if err == nil {
		fmt.Fprintf(w, "after %d transfers the accounts have %d together\n", len(group)*workers*transfers, sum)
	}
	return err
}

// work makes transfers between two accounts each.
func work(ctx context.Context, m *oneprocess.Member) error {
	bank := &bank{m.Node}
	for range transfers {
		from, to := rand.N(accounts), rand.N(accounts-1)
		if to >= from {
			to++
		}
		if err := bank.transfer(ctx, account(from), account(to), 1+rand.N(deposit)); err != nil {
			return err
		}
	}
	return nil
}

// audit checks the sum while the workers work.
func audit(ctx context.Context, b *bank, w io.Writer) error {
	for range audits {
		sum, err := b.sum(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "an audit beside %d workers finds %d\n", 3*workers, sum)
	}
	return nil
}
