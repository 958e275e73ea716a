package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/display"
)

type entryView struct {
	Key         string              `json:"key"`
	Value       string              `json:"value"`
	Base64      string              `json:"valueBase64,omitempty"` // in place of value, if that is not UTF-8
	Flags       uint64              `json:"flags"`
	CreateIndex uint64              `json:"createIndex"`
	ModifyIndex uint64              `json:"modifyIndex"`
	LockIndex   uint64              `json:"lockIndex"`
	Session     *conclave.SessionID `json:"session"` // that holds the key; null: none
	Fence       *conclave.Fence     `json:"fence"`   // the largest that it was written with; null: none
}

func entryOf(e conclave.Entry) entryView {
	v := entryView{Key: e.Key, Flags: e.Flags, CreateIndex: e.CreateIndex, ModifyIndex: e.ModifyIndex, LockIndex: e.LockIndex}
	v.Value, v.Base64 = text(e.Value)
	if e.Session != (conclave.SessionID{}) {
		v.Session = &e.Session
	}
	if e.Fence != 0 {
		v.Fence = &e.Fence
	}
	return v
}

// text is a value as text, or in base64.
func text(value []byte) (plain, encoded string) {
	if utf8.Valid(value) {
		return string(value), ""
	}
	return "", base64.StdEncoding.EncodeToString(value)
}

// shortened is a value in a table.
func shortened(value []byte) string { return display.Value(value, 60) }

func (p *program) kvCommand() *cobra.Command {
	kv := &cobra.Command{Use: "kv", Short: "Read and write keys", Args: exactly(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	kv.AddCommand(p.getCommand(), p.putCommand(), p.casCommand(), p.lsCommand(), p.rmCommand())
	return kv
}

func staleFlag(flags *pflag.FlagSet, stale *bool) {
	flags.BoolVar(stale, "stale", false, "read what a member has, which may be old, without asking the group; without a quorum the exit code is 5")
}

func readOptions(stale bool) []conclave.ReadOption {
	if stale {
		return []conclave.ReadOption{conclave.Stale()}
	}
	return nil
}

func (p *program) getCommand() *cobra.Command {
	var stale bool
	cmd := &cobra.Command{
		Use: "get KEY", Args: exactly("KEY"), Short: "Print a key's value, as it is; --output json adds its indexes",
		Long: "Print a key's value, as it is; at a terminal on a line of its own. --output json adds its indexes.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.readingCall(cmd.Context(), stale, func(ctx context.Context, c groupClient) error {
				e, err := c.KV().Get(ctx, args[0], readOptions(stale)...)
				if err != nil {
					return err
				}
				if p.format == "json" {
					return p.one(entryOf(e), nil)
				}
				value := e.Value
				if p.atTerminal() && !bytes.HasSuffix(value, []byte("\n")) {
					value = append(value, '\n') // or the prompt of the shell would follow the value
				}
				_, err = p.stdout.Write(value)
				return err
			})
		},
	}
	staleFlag(cmd.Flags(), &stale)
	return cmd
}

// maxInput bounds what is read from standard input: more than any value.
const maxInput = 1 << 20

// value is an argument, or standard input for "-".
func (p *program) value(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	return io.ReadAll(io.LimitReader(p.stdin, maxInput))
}

func flagsFlag(flags *pflag.FlagSet, number *uint64) {
	flags.Uint64Var(number, "flags", 0, "a `number` to store with the key, whose meaning is yours")
}

func (p *program) putCommand() *cobra.Command {
	var number uint64
	var fence string
	cmd := &cobra.Command{
		Use: "put KEY VALUE", Args: exactly("KEY", "VALUE"), Short: "Write a key; VALUE - reads standard input",
		Long: "Write a key. VALUE - reads standard input. With --fence the write is refused if the key was written with a larger fence: " +
			"under conclave lock, --fence \"$CONCLAVE_FENCE\" keeps an earlier holder from overwriting what a later one wrote.",
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := p.value(args[1])
			if err != nil {
				return err
			}
			var f conclave.Fence
			if fence != "" {
				if f, err = parseFence(fence); err != nil {
					return err
				}
			}
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				put := func() (conclave.Entry, error) { return c.KV().Put(ctx, args[0], value, conclave.WithFlags(number)) }
				if f != 0 {
					put = func() (conclave.Entry, error) { return c.KV().PutFenced(ctx, args[0], value, f) }
				}
				e, err := put()
				if err != nil {
					return err
				}
				return p.written(e)
			})
		},
	}
	flagsFlag(cmd.Flags(), &number)
	cmd.Flags().StringVar(&fence, "fence", "", "the `fence` of the lock under which the key is written")
	cmd.MarkFlagsMutuallyExclusive("flags", "fence")
	return cmd
}

// written prints where a write has taken place.
func (p *program) written(e conclave.Entry) error {
	return p.one(entryOf(e), func(w *tabwriter.Writer) { fmt.Fprintf(w, "modify index %d\n", e.ModifyIndex) })
}

func (p *program) casCommand() *cobra.Command {
	var number, index uint64
	cmd := &cobra.Command{
		Use: "cas KEY VALUE --index N", Args: exactly("KEY", "VALUE"), Short: "Write a key if its modify index is N; 0: if it does not exist",
		Long: "Write a key if its modify index is N; 0: if it does not exist. Otherwise nothing is changed, and the exit code is 4.",
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := p.value(args[1])
			if err != nil {
				return err
			}
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				e, swapped, err := c.KV().CompareAndSwap(ctx, args[0], index, value, conclave.WithFlags(number))
				switch {
				case err != nil:
					return err
				case !swapped:
					return withCode(exitRefused, fmt.Errorf("key %q does not have the modify index %d: nothing is changed", args[0], index))
				}
				return p.written(e)
			})
		},
	}
	flagsFlag(cmd.Flags(), &number)
	cmd.Flags().Uint64Var(&index, "index", 0, "the modify index `N` that the key must have (required)")
	_ = cmd.MarkFlagRequired("index") // it exists
	return cmd
}

func (p *program) lsCommand() *cobra.Command {
	var stale, keys bool
	var separator string
	cmd := &cobra.Command{
		Use: "ls [PREFIX]", Args: between(0, "PREFIX"), Short: "List the keys that begin with a prefix",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.readingCall(cmd.Context(), stale, func(ctx context.Context, c groupClient) error {
				if keys || separator != "" {
					found, err := c.KV().Keys(ctx, prefixOf(args), separator, readOptions(stale)...)
					if err != nil {
						return err
					}
					return many(p, 0, "KEY", values(found), func(key string) (any, []string) { return key, []string{name(key)} })
				}
				found, err := c.KV().List(ctx, prefixOf(args), readOptions(stale)...)
				if err != nil {
					return err
				}
				return many(p, 0, "KEY VALUE MODIFY-INDEX LOCKED-BY", values(found), func(e conclave.Entry) (any, []string) {
					locked := "-"
					if e.Session != (conclave.SessionID{}) {
						locked = e.Session.String()
					}
					return entryOf(e), []string{name(e.Key), shortened(e.Value), fmt.Sprint(e.ModifyIndex), locked}
				})
			})
		},
	}
	staleFlag(cmd.Flags(), &stale)
	cmd.Flags().BoolVar(&keys, "keys", false, "only the names")
	cmd.Flags().StringVar(&separator, "separator", "", "only the names, up to the first `text` behind the prefix")
	return cmd
}

func values[T any](all []T) func(yield func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func (p *program) rmCommand() *cobra.Command {
	var prefix bool
	var index uint64
	cmd := &cobra.Command{
		Use: "rm KEY", Aliases: []string{"delete"}, Args: exactly("KEY"), Short: "Delete a key; --index only that version, --prefix all keys that begin so",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				switch {
				case prefix:
					return c.KV().DeletePrefix(ctx, args[0])
				case !cmd.Flags().Changed("index"):
					return c.KV().Delete(ctx, args[0])
				}
				deleted, err := c.KV().CompareAndDelete(ctx, args[0], index)
				if err == nil && !deleted {
					err = withCode(exitRefused, fmt.Errorf("key %q does not have the modify index %d: nothing is changed", args[0], index))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "delete all keys that begin with KEY")
	cmd.Flags().Uint64Var(&index, "index", 0, "delete the key only if its modify index is `N`")
	cmd.MarkFlagsMutuallyExclusive("prefix", "index")
	return cmd
}

type eventView struct {
	entryView
	Deleted bool   `json:"deleted"`
	Index   uint64 `json:"index"`
}

func (p *program) watchCommand() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{
		Use: "watch [PREFIX]", Args: between(0, "PREFIX"), Short: "Print each change of the keys that begin with a prefix, until interrupted",
		Long: "Print each change of the keys that begin with a prefix, in order, none merged or left out, until interrupted. --after continues " +
			"behind the index of a change that was printed before.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.connected(cmd.Context(), func(c groupClient) error {
				from := after
				if !cmd.Flags().Changed("after") {
					limited, cancel := p.within(cmd.Context())
					defer cancel()
					var err error
					if from, err = c.KV().Index(limited); err != nil {
						return err
					}
				}
				return p.watch(cmd.Context(), c, prefixOf(args), from)
			})
		},
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "the `index` behind which to begin (default: now)")
	return cmd
}

func (p *program) watch(ctx context.Context, c groupClient, prefix string, after uint64) error {
	// Each change is printed when it comes, so the columns cannot be aligned.
	for e, err := range c.KV().Watch(ctx, prefix, after) {
		if err != nil {
			return err
		}
		err = p.one(eventView{entryOf(e.Entry), e.Deleted, e.Index}, func(w *tabwriter.Writer) {
			if e.Deleted {
				fmt.Fprintf(w, "%d deleted %s\n", e.Index, name(e.Entry.Key))
				return
			}
			fmt.Fprintf(w, "%d put %s %s\n", e.Index, name(e.Entry.Key), shortened(e.Entry.Value))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
