package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
)

type options struct {
	cfg    conclave.Config
	lock   string
	leave  bool
	admin  string
	probes string
}

var errUsage = errors.New("run it with -help for all flags")

const usage = `Member runs one member of a group that shares a lock.
"go doc ./examples/member" prints the commands that start a group of three.

Ask a running member (-admin address, default ` + defaultAdmin + `):
  member status                    the group as this member sees it, in JSON
  member config [-voters ...]      print the group's settings, or change some
  member transfer [-to member]     transfer leadership
  member remove -member ID         remove another member permanently
  member leave                     have this member leave the group, and end
  member backup -file FILE         back up the group

With no member on the directory:
  member verify -dir DIR           check a directory and print what it has
  member restore -dir DIR -file F  make a new group from a backup
  member recover -dir DIR          make a new group from a surviving directory

Flags of a member:
`

func parse(args []string) (options, error) {
	var o options
	var join string
	var memory bool
	var t tlsFiles
	flags := flag.NewFlagSet("member", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required, or -memory)")
	flags.BoolVar(&memory, "memory", false, "keep the state in memory: a restarted process is a new member")
	flags.StringVar(&o.cfg.Bind, "bind", "127.0.0.1:0", "`address` to listen on")
	flags.StringVar(&o.cfg.Advertise, "advertise", "", "`address` that other members dial (default: that of -bind)")
	flags.StringVar(&join, "join", "", "comma-separated `addresses` of other members")
	flags.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many `members`, if none exists (default: 1 without -join; with -join, form none)")
	flags.IntVar(&o.cfg.Voters, "voters", 3, "how many `members` of a new group vote: 1, 3, 5 or 7")
	flags.StringVar(&o.cfg.Group, "group", "conclave", "`name` of the group")
	flags.StringVar(&o.cfg.Name, "name", "", "`name` of this member in the output (default: the host name)")
	flags.StringVar(&o.lock, "lock", "", "`name` of a lock to acquire and hold (default: none)")
	flags.DurationVar(&o.cfg.SessionTTL, "ttl", 10*time.Second, "session TTL, after which a crashed holder loses the lock; 1s to 24h")
	flags.BoolVar(&o.leave, "leave", false, "leave the group at SIGTERM or Ctrl-C; without it, the member stays in the group and may return")
	flags.StringVar(&o.admin, "admin", "", "loopback `address` for operators (default: none)")
	flags.StringVar(&o.probes, "probes", "", "`address` for /livez and /readyz (default: none)")
	t.define(flags)
	_ = flags.Parse(args) // exits on -help and on an error
	if join != "" {
		o.cfg.Join = strings.Split(join, ",")
	}
	o.cfg.Insecure = t.insecure
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: %w", flags.Arg(0), errUsage)
	case o.cfg.Dir == "" && !memory:
		return o, fmt.Errorf("missing -dir, the data directory of this member, or -memory: %w", errUsage)
	case o.cfg.Dir != "" && memory:
		return o, fmt.Errorf("-dir and -memory exclude each other: %w", errUsage)
	}
	var err error
	o.cfg.TLS, err = t.config()
	return o, err // Open validates the rest and reports all faults at once
}
