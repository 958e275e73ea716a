package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
)

// program is one run of a command line.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	// While a child runs, signals has those for it. stopping: one of them asked it to end.
	delivering            sync.Mutex // a signal; guards the two below
	supervising, stopping bool
	signals               chan os.Signal
	broken                chan os.Signal // SIGPIPE, if it must not end this process
	hangups               chan struct{}  // SIGHUP, for a command that reloads; nil: it ends this process
	saying                sync.WaitGroup // messages that are printed while a child runs

	connection  connection
	secured     *certificates   // of the last use of connection; nil: plaintext
	environment map[string]bool // the flags that it has set
	format      string
	code        int // of the command that lock or elect ran, unless 0
}

// The groups of commands in the help.
const (
	groupUse    = "use"
	groupSee    = "see"
	groupChange = "change"
	groupMember = "member"
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "conclave",
		Short: "Locks, elections and keys of a conclave group, from a terminal",
		Long: "Conclave operates a group from a terminal, runs programs under its locks, and runs members.\n\n" +
			"The flags that all commands have, and those of agent, can be set by environment variables: CONCLAVE_ADDR stands for --addr.",
		Version:       conclave.Version(),
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return p.prepare(cmd) },
	}
	root.SetVersionTemplate("conclave {{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupUse, Title: "Use the group:"},
		&cobra.Group{ID: groupSee, Title: "See what it does:"},
		&cobra.Group{ID: groupChange, Title: "Operate it:"},
		&cobra.Group{ID: groupMember, Title: "Members and their directories:"},
	)
	flags := root.PersistentFlags()
	p.connection.define(flags)
	flags.StringVarP(&p.format, "output", "o", "table", "`format` of the output: table or json")
	root.AddCommand(flagsTopic(flags))
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupUse, p.lockCommand(), p.electCommand(), p.jobCommand(), p.kvCommand(), p.watchCommand())
	add(groupSee, p.statusCommand(), p.membersCommand(), p.groupsCommand(), p.locksCommand(), p.semaphoresCommand(), p.electionsCommand(), p.shardsCommand(),
		p.jobsCommand(), p.sessionsCommand(), p.topCommand(), p.explainCommand(), p.cyclesCommand(), p.eventsCommand(), p.benchCommand())
	add(groupChange, p.releaseCommand(), p.transferCommand(), p.removeCommand(), p.configCommand(), p.backupCommand())
	add(groupMember, p.agentCommand(), p.healthCommand(), p.leaveCommand(), p.verifyCommand(), p.restoreCommand(), p.recoverCommand(), p.versionCommand(), p.manCommand())
	return root
}

// flagsTopic is what "help flags" prints. It does nothing else.
func flagsTopic(flags *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use: "flags", Short: "The flags that all commands have",
		Long: "The flags that all commands have. An environment variable stands for each: CONCLAVE_ADDR for --addr.\n\n" + flags.FlagUsages(),
	}
}

// usageTemplate is cobra's, but for the flags that all commands have: "help flags" shows them, once.
func usageTemplate(original string) string {
	return strings.NewReplacer(
		".LocalFlags.FlagUsages", ".LocalNonPersistentFlags.FlagUsages",
		"{{if .HasAvailableInheritedFlags}}\n\nGlobal Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}",
		"\n\nUse \"{{.Root.Name}} help flags\" for the flags that all commands have.",
	).Replace(original)
}

// usageError is about the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// fromEnvironment marks a command of which the environment can set all flags. Those that change
// something must be asked for: the directory of an agent is not one to recover.
const fromEnvironment = "environment"

// reloads marks a command that reads files again at SIGHUP, and does not end.
const reloads = "reloads"

// prepare completes the flags from the environment and checks those of all commands.
func (p *program) prepare(cmd *cobra.Command) error {
	var faults []string
	p.environment = make(map[string]bool)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variable(f.Name))
		shared := cmd.Root().PersistentFlags().Lookup(f.Name) == f || cmd.Annotations[fromEnvironment] != ""
		if f.Changed || value == "" || !shared {
			return
		}
		p.environment[f.Name] = true
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", variable(f.Name), err))
		}
	})
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// 0 is none, or a default, but for the time between two pictures or questions.
		if d, err := cmd.Flags().GetDuration(f.Name); err == nil && (d != 0 || f.Name == "interval") && d < time.Millisecond {
			faults = append(faults, fmt.Sprintf("--%s %v: want at least %v", f.Name, d, time.Millisecond))
		}
	})
	if len(faults) > 0 {
		return usagef("%s", strings.Join(faults, "; "))
	}
	if p.connection.timeout == 0 {
		return usagef("--timeout 0s: want a time above 0")
	}
	if p.format != "table" && p.format != "json" {
		return usagef("--output %q: want table or json", p.format)
	}
	return nil
}

// given reports whether the command line has a flag: it is preferred to one that excludes it and that the environment sets.
func (p *program) given(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Changed(flag) && !p.environment[flag]
}

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	return "CONCLAVE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// exactly is cobra.ExactArgs with a message that names the arguments.
func exactly(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between takes the first least of the named arguments, or more.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("missing %s", names[len(args)])
		case len(args) > len(names):
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}
