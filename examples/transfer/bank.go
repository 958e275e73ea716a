package main

import (
	"context"
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
	return b.node.LockSet([]string{from, to}).Do(ctx, func(ctx context.Context, fence conclave.Fence) error {
		source, err := b.balance(ctx, from)
		if err != nil {
			return err
		}
		target, err := b.balance(ctx, to)
		if err != nil {
			return err
		}
		moved := min(most, source)
		_, err = b.node.KV().Txn(ctx,
			conclave.OpPutFenced(from, amount(source-moved), fence),
			conclave.OpPutFenced(to, amount(target+moved), fence))
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
	err = b.node.LockSet(nil, conclave.Shared(names...)).Do(ctx, func(ctx context.Context, _ conclave.Fence) error {
		for _, name := range names {
			balance, err := b.balance(ctx, name)
			if err != nil {
				return err
			}
			sum += balance
		}
		return nil
	})
	if err == nil && sum != accounts*deposit {
		err = fmt.Errorf("the accounts have %d together, want %d", sum, accounts*deposit)
	}
	return sum, err
}

func (b *bank) balance(ctx context.Context, name string) (int, error) {
	e, err := b.node.KV().Get(ctx, name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(e.Value))
}

func amount(n int) []byte { return []byte(strconv.Itoa(n)) }
