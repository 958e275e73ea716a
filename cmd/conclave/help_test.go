package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
)

// The flags that all commands have are in one help.
func TestHelp_SharedFlagsOnce(t *testing.T) {
	n := member(t, "")
	root := new(program).root()
	shared := must(t, n, "help", "flags")
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(shared, "--"+f.Name+" ") {
			t.Errorf("help flags does not have --%s:\n%s", f.Name, shared)
		}
	})
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Runnable() || c.HasSubCommands() {
			out := must(t, n, append(strings.Fields(c.CommandPath())[1:], "--help")...)
			if strings.Contains(out, "\n      --addr addresses") || strings.Contains(out, "\n      --timeout duration") || !strings.Contains(out, `"conclave help flags"`) {
				t.Errorf("%s:\n%s", c.CommandPath(), out)
			}
			c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				if !strings.Contains(out, "--"+f.Name) {
					t.Errorf("%s --help does not have --%s", c.CommandPath(), f.Name)
				}
			})
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(root)
}

func TestAliases(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	must(t, n, "kv", "put", "k", "v")
	must(t, n, "kv", "delete", "k")
	want(t, conclaveAt(n, "kv", "get", "k"), 4, "not found")
	s, err := n.NewSession(within(t), &conclave.SessionConfig{Name: "other"})
	must0(t, err)
	_, err = s.FencedLock("y").Lock(within(t))
	must0(t, err)
	want(t, conclaveAt(n, "unlock", "y"), 2, "--force does it")
	must(t, n, "unlock", "y", "--force")
	must0(t, lockNow(t, n, "y"))
}
