package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/conclave-go/conclave"
)

// bank has accounts in the group's keys. The lock of an account has its name.
type bank struct{ node *conclave.Node }

func account(n int) string { return fmt.Sprintf("account/%d", n) }

// open makes the accounts.
func (b *bank) open(ctx context.Context) error {
	var puts []conclave.Op
	for i := range accounts {
		puts = append(puts, conclave.OpPut(account(i), amount(deposit)))
	}
	_, err := b.node.KV().Txn(ctx, puts...)
	return err
}

// transfer moves some money, or as much as there is. Both balances are its own until it returns.
func (b *bank) transfer(ctx context.Context, from, to string, most int) error {
	set := b.node.LockSet([]string{from, to})
	return set.Do(ctx, func(ctx context.Context, fence conclave.Fence) error {
		balances, err := b.claim(ctx, set, from, to)
		if err != nil {
			return err
		}
		moved := min(most, balances[from])
		_, err = b.node.KV().Txn(ctx,
			conclave.OpPutFenced(from, amount(balances[from]-moved), fence),
			conclave.OpPutFenced(to, amount(balances[to]+moved), fence))
		return err
	})
}

// sum counts what all accounts have, beside others that count and while no transfer is under way. It is an error unless
// that is what was paid in.
func (b *bank) sum(ctx context.Context) (sum int, err error) {
	var names []string
	for i := range accounts {
		names = append(names, account(i))
	}
	set := b.node.LockSet(nil, conclave.Shared(names...))
	err = set.Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
		balances, err := b.claim(ctx, set, names...)
		for _, balance := range balances {
			sum += balance
		}
		return err
	})
	if err == nil && sum != accounts*deposit {
		err = fmt.Errorf("the accounts have %d together, want %d", sum, accounts*deposit)
	}
	return sum, err
}

// claim reads the balances of accounts that set holds, and leaves its fences there, in one step. A worker that has lost
// its set without noticing has smaller ones. If its write came before that step, claim reads it; if it comes later, the
// group refuses it. A claim that only read, and left the fence to a write that follows, would let it in between.
func (b *bank) claim(ctx context.Context, set *conclave.LockSet, names ...string) (map[string]int, error) {
	for {
		balances := make(map[string]int)
		var step []conclave.Op
		for _, name := range names {
			e, err := b.node.KV().Get(ctx, name)
			if err != nil {
				return nil, err
			}
			if balances[name], err = strconv.Atoi(string(e.Value)); err != nil {
				return nil, err
			}
			fence, err := set.FenceOf(name) // a shared account has the one of all that share it
			if err != nil {
				return nil, err
			}
			step = append(step, conclave.OpExpect(name, e.ModifyIndex), conclave.OpPutFenced(name, e.Value, fence))
		}
		_, err := b.node.KV().Txn(ctx, step...)
		if !errors.Is(err, conclave.ErrCompareFailed) { // an account has changed since it was read, by such a worker or a claim
			return balances, err
		}
	}
}

func amount(n int) []byte { return []byte(strconv.Itoa(n)) }
