package main

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// completeLock completes the name of a lock for a shell.
func (p *program) completeLock(cmd *cobra.Command, args []string, beginning string) ([]string, cobra.ShellCompDirective) {
	return p.completeNames(cmd, args, func(ctx context.Context, c groupClient, add func(string) bool) error {
		for l, err := range c.Locks(ctx, beginning) {
			if err != nil || !add(l.Name) {
				return err
			}
		}
		return nil
	})
}

// completeNames completes the first argument by names that list adds until add returns false.
func (p *program) completeNames(cmd *cobra.Command, args []string, list func(ctx context.Context, c groupClient, add func(string) bool) error) ([]string, cobra.ShellCompDirective) {
	const most = 50
	if len(args) > 0 || p.prepare(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var names []string
	add := func(n string) bool {
		if name(n) == n { // a shell takes each line for a name
			names = append(names, n)
		}
		return len(names) < most
	}
	_ = p.connected(ctx, func(c groupClient) error { return list(ctx, c, add) }) // a shell has no place for an error
	return insertable(names), cobra.ShellCompDirectiveNoFileComp
}

// insertable returns the names, or none if what they have in common would be interpreted: a shell quotes a single name, but
// bash inserts what several begin with as it is.
func insertable(names []string) []string {
	if len(names) > 1 && strings.ContainsFunc(commonPrefix(names), isInterpreted) {
		return nil
	}
	return names
}

func commonPrefix(names []string) string {
	common := names[0]
	for _, n := range names[1:] {
		i := 0
		for i < min(len(common), len(n)) && common[i] == n[i] {
			i++
		}
		common = common[:i]
	}
	return strings.ToValidUTF8(common, "") // bytes of a character that they do not share
}

// isInterpreted reports whether a shell may take a character for something else than itself.
func isInterpreted(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._/:@%+,=", r)
}
