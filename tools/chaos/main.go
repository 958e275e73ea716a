//go:build linux

// Command chaos runs a group of real processes, each in a network namespace of its
// own, injects faults, and checks what the clients saw.
//
//	go -C tools/chaos run . -for 2m -nemesis all
//
// It needs root, and Debian's packages nftables and iproute2. Everything happens in
// namespaces (network, mounts, processes) that the kernel removes with the tool,
// however it ends: the network of the host is not touched. docs/TESTING.md says what
// is checked. The exit status is 0 without a violation, 1 with one, 2 if the tool
// could not run, 130 after an interrupt.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	exitViolation   = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// Hidden first arguments, with which the tool starts itself.
const (
	modeInside = "inside" // the tool, in its namespaces
	modeMember = "member" // a member of the group
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 {
		switch args[0] {
		case modeMember:
			os.Exit(memberMain(args[1:]))
		case modeInside:
			os.Exit(insideMain(args[1:]))
		}
	}
	os.Exit(outsideMain(args))
}

// options are the flags.
type options struct {
	span    time.Duration
	nemeses []nemesis
	members int
	groups  int
	seed    uint64
	dir     string
	keep    bool
	rate    int
	verbose bool
	binary2 string
	list    bool
	check   string
}

var errUsage = errors.New("see -help")

// parseOptions parses the command line. It returns flag.ErrHelp after -help, and an
// error that wraps errUsage for an invalid argument.
func parseOptions(args []string, output io.Writer) (options, error) {
	var o options
	var names string
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.DurationVar(&o.span, "for", time.Minute, "how long each nemesis injects faults")
	flags.StringVar(&names, "nemesis", "all", "comma-separated `names` of nemeses, run in this order, or all; -list prints them")
	flags.IntVar(&o.members, "members", 5, "`number` of members, 3 to 9")
	flags.IntVar(&o.groups, "groups", 1, fmt.Sprintf("`number` of groups, the default one and further ones, 1 to %d; with further ones the load also creates and deletes groups", mostGroups))
	flags.Uint64Var(&o.seed, "seed", 0, "seed of the faults and of the clients' choices; 0 takes the time. Threads and disks make each run different all the same")
	flags.StringVar(&o.dir, "dir", "", "`directory` for the members' data and the histories (default: a new one in the directory for temporary files)")
	flags.BoolVar(&o.keep, "keep", false, "keep the directory also without a violation")
	flags.IntVar(&o.rate, "rate", 1000, "`operations` per second that all clients together aim at, 10 to 100000")
	flags.BoolVar(&o.verbose, "v", false, "print each fault")
	flags.StringVar(&o.binary2, "binary2", "", "`file` of a newer build of this tool, to which rolling-upgrade changes the members")
	flags.StringVar(&o.check, "check", "", "check the histories in `directory` again, one of a nemesis that an earlier run has kept, and exit")
	flags.BoolVar(&o.list, "list", false, "print the nemeses and exit")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(flags.NArg() == 0, "unexpected argument %q", flags.Arg(0))
	check(o.span >= time.Second, "invalid -for: want 1s or more, got %v", o.span)
	check(o.members >= 3 && o.members <= 9, "invalid -members: want 3 to 9, got %d", o.members)
	check(o.groups >= 1 && o.groups <= mostGroups, "invalid -groups: want 1 to %d, got %d", mostGroups, o.groups)
	check(o.rate >= 10 && o.rate <= 100_000, "invalid -rate: want 10 to 100000, got %d", o.rate)
	if o.binary2 != "" {
		_, err := os.Stat(o.binary2)
		check(err == nil, "invalid -binary2: %v", err)
	}
	selected, err := selectNemeses(names)
	check(err == nil, "%v", err)
	o.nemeses = selected
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	if len(faults) > 0 {
		return o, fmt.Errorf("%w: %w", errors.Join(faults...), errUsage)
	}
	return o, nil
}

// selectNemeses returns the nemeses of a comma-separated list.
func selectNemeses(names string) ([]nemesis, error) {
	if names == "all" {
		return nemeses(), nil
	}
	var selected []nemesis
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(nemeses(), func(n nemesis) bool { return n.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("invalid -nemesis: want all, or names that -list prints, got %q", name)
		}
		selected = append(selected, nemeses()[i])
	}
	return selected, nil
}

// arguments returns the command line of the tool in its namespaces.
func (o options) arguments() []string {
	var names []string
	for _, n := range o.nemeses {
		names = append(names, n.name)
	}
	args := []string{
		modeInside, "-for", o.span.String(), "-nemesis", strings.Join(names, ","), "-dir", o.dir,
		"-members", fmt.Sprint(o.members), "-groups", fmt.Sprint(o.groups), "-seed", fmt.Sprint(o.seed), "-rate", fmt.Sprint(o.rate),
	}
	if o.verbose {
		args = append(args, "-v")
	}
	if o.binary2 != "" {
		absolute, err := filepath.Abs(o.binary2)
		if err == nil {
			o.binary2 = absolute
		}
		args = append(args, "-binary2", o.binary2)
	}
	return args
}

func printNemeses(w io.Writer) {
	for _, n := range nemeses() {
		fmt.Fprintf(w, "%-22s %s\n", n.name, n.about)
	}
}
